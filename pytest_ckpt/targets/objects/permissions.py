"""Tries, before a run, whether it may do what it will have to: each refusal is told with the permission that lacks."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable

from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.errors import refusal
from pytest_ckpt.targets.objects.keys import TRIAL, BucketPrefix

_ROLES = {
    "az": "of the role Storage Blob Data Contributor, or a SAS token with racwdl",
    "gs": "of the role Storage Object User (roles/storage.objectUser)",
}
_DATA = b"pytest-ckpt tries whether it may write here.\n"


def lacking(scheme: str, permission: str) -> str:
    """Return what to do where a permission of S3, or what stands for it elsewhere, lacks."""
    return f"Give these credentials the permission {_ROLES.get(scheme, permission)}."


def try_all(bucket: Bucket, place: BucketPrefix, name: str) -> None:
    """Put, read, list and delete an object, begin and abort an upload. Raises UsageError; ``name`` begins its text.

    What cannot be removed again is named with the command that removes it.
    """
    key = f"{place.below}{TRIAL}"

    def do(what: str, permission: str, act: Callable[[], None], stays: str = "") -> None:
        try:
            act()
        except OSError as error:
            refused = refusal(f"{name}: {what}", error)
            remedy = lacking(place.scheme, permission) if error.errno == errno.EACCES else refused.remedy
            raise UsageError(refused.what, " ".join(filter(None, (remedy, stays)))) from None

    def read() -> None:
        if bucket.get(key) != _DATA:
            raise OSError(errno.EIO, "what comes back is not what was put", bucket.url(key))

    do("an object cannot be put", "s3:PutObject", lambda: _put(bucket, key, name))
    do("an object cannot be read", "s3:GetObject", read)
    do("objects cannot be listed", "s3:ListBucket", lambda: _listed(bucket, place, key))
    upload: list[str] = []
    do("no upload in parts can be begun", "s3:PutObject", lambda: upload.append(bucket.begin_upload(key)))
    by_hand = f"An unfinished upload stays: {place.abortion(key, upload[0], bucket.access)}"
    do("an upload cannot be aborted", "s3:AbortMultipartUpload", lambda: bucket.abort_upload(key, upload[0]), by_hand)
    do("unfinished uploads cannot be listed", "s3:ListBucketMultipartUploads", lambda: _none(bucket, place))
    stays = f"What was put there stays: {place.removal(bucket.access)}"
    do("an object cannot be deleted", "s3:DeleteObject", lambda: bucket.delete(key), stays)


def _put(bucket: Bucket, key: str, name: str) -> None:
    """Put the object. Raises UsageError where the answer names a version of it, which would outlive its deletion."""
    version = bucket.put_version(key, _DATA)
    if version:
        with contextlib.suppress(OSError):
            bucket.delete(key, version)
        raise keeps_versions(name)


def keeps_versions(name: str) -> UsageError:
    """Return why a bucket with versions is refused."""
    return UsageError(
        f"{name}: the bucket keeps versions, so that every checkpoint that is deleted would stay.",
        "Name a bucket that was made without versioning. To suspend it is not enough: delete markers stay, and with "
        "object lock it is impossible.",
    )


def _listed(bucket: Bucket, place: BucketPrefix, key: str) -> None:
    if key not in bucket.keys(place.below):
        raise OSError(errno.EIO, "an object that was put is not among them", bucket.url(key))


def _none(bucket: Bucket, place: BucketPrefix) -> None:
    bucket.uploads(place.below)
