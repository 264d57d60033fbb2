"""A small S3 server on this host for a first run. The server uses HTTP and stores objects in a temporary file."""
