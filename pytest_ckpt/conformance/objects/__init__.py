"""Checks of how an object store behaves, by requests of S3 that two clients make."""
