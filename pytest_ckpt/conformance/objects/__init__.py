"""Checks of an object store's behaviour, by S3 requests of two clients."""
