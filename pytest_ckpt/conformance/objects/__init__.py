"""Checks of an object store's behaviour. Two clients send S3 requests."""
