"""``python -m pytest_ckpt.targets.objects.remove s3://…``: removes by hand what a run left in a bucket.

Objects, unfinished uploads, and what a bucket with versions keeps of them. It removes nothing outside of a run's place.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.keys import RUN, BucketPrefix, read_url
from pytest_ckpt.targets.objects.wire import OF_CONTROLLER

T = TypeVar("T")

_AT_ONCE = 8


def main(words: Sequence[str] | None = None) -> int:
    """Remove what the words name; exit 0 when nothing of it is left, 1 when the store refused, 4 for other places."""
    asked = _parser().parse_args(words)
    try:
        place = read_url(asked.place)
        _check_place(place)
        endpoints = tuple(filter(None, asked.endpoint.split(",")))
        access = Access(endpoints=endpoints, ca_bundle=asked.ca_bundle)
        with contextlib.closing(Bucket(place, access, OF_CONTROLLER)) as bucket:
            removed = _removed_upload(bucket, asked.upload) if asked.upload else _removed(bucket, one=asked.one)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 4
    except OSError as error:
        print(f"{asked.place}: {error.strerror or error}", file=sys.stderr)
        return 1
    print(f"{place.url}: removed {removed}")
    return 0


def _check_place(place: BucketPrefix) -> None:
    """Refuse what no run made. Raises UsageError."""
    if not any(part.startswith(RUN) for part in place.prefix.split("/")):
        raise UsageError(
            f"{place.url}: this is no place of a run: no part of it begins with {RUN}.",
            "Name the place that the run named.",
        )


def _removed_upload(bucket: Bucket, upload: str) -> str:
    bucket.abort_upload(bucket.place.prefix, upload)
    return "an unfinished upload"


def _removed(bucket: Bucket, *, one: bool) -> str:
    """Remove an object, or all below a place; return in words what that was."""
    key = bucket.place.prefix
    prefix = key if one else bucket.place.below

    def is_meant(found: str) -> bool:
        return found == key if one else True

    # An upload that is aborted first cannot become an object meanwhile.
    uploads = [pair for pair in bucket.uploads(prefix) if is_meant(pair[0])]
    _each(uploads, lambda pair: bucket.abort_upload(*pair))
    keys = [found for found in bucket.keys(prefix) if is_meant(found)]
    _each(keys, bucket.delete)
    kept = [each for each in bucket.versions(prefix) if is_meant(each.key)]
    _each(kept, lambda each: bucket.delete(each.key, each.version))
    return (
        f"{counted(len(keys), 'object')}, {counted(len(uploads), 'unfinished upload')}, "
        f"{counted(len(kept), 'version or delete marker', 'versions and delete markers')}"
    )


def _each(things: Iterable[T], act: Callable[[T], object]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(act, things))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pytest_ckpt.targets.objects.remove", description=__doc__)
    parser.add_argument("place", help="the place of a run, or an object in it, as the run named it")
    parser.add_argument("--endpoint", default="", help="as --ckpt-endpoint")
    parser.add_argument("--ca-bundle", default="", help="as --ckpt-ca-bundle")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--one", action="store_true", help="this object, and nothing below it")
    only.add_argument("--upload", default="", help="this unfinished upload of the object alone")
    return parser


if __name__ == "__main__":
    sys.exit(main())
