"""A small server of S3 on this host, for a first run: objects in files, requests over HTTP."""
