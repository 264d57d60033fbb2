"""A small S3 server on this host for a first run: objects are in a file, requests use HTTP."""
