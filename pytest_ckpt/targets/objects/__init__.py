"""A bucket of an object store as a target, by the requests of S3."""
