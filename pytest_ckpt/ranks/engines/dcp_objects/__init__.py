"""Engines ``dcp-…``: torch.distributed.checkpoint into a bucket, by the clients of object stores that jobs use."""
