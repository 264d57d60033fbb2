"""Where a library of a job, which asks a bucket by itself, finds what belongs to a checkpoint."""

from __future__ import annotations

from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.dialect import is_aws_itself
from pytest_ckpt.targets.protocol import ObjectPlace


def library_place(bucket: Bucket, key: str) -> ObjectPlace:
    """Return the place below a key. Of several endpoints it is the one that this process uses now."""
    return ObjectPlace(
        url=bucket.url(key),
        endpoint="" if is_aws_itself(bucket.endpoint, bucket.region) else bucket.endpoint,
        region=bucket.region,
        ca_bundle=bucket.access.ca_bundle,
        is_open=bool(bucket.access.embedded),
    )
