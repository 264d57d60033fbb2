"""A bucket of an object store as a target, accessed by S3 requests."""
