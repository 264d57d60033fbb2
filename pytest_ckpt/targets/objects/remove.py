"""Removes a run's objects: automatically at the end of the run, or manually.

At the end of a run, a separate process removes the objects and uploads that the run may have created. Manually,
``python -m pytest_ckpt.targets.objects.remove s3://…`` removes all objects, unfinished uploads and older versions below
the run's prefix. Objects outside of this prefix remain.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.targets import Access, AreaRef
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.keys import RUN, BucketPrefix, prefix_of, read_url, sort_out
from pytest_ckpt.targets.objects.wire import OF_CONTROLLER, Patience
from pytest_ckpt.targets.owner import OWNER

T = TypeVar("T")

_AT_ONCE = 8
_PATIENCE = Patience(connect_seconds=10, silent_seconds=20, attempts=3, bears=True)


def clean_in_process(request: Mapping[str, Any]) -> list[str]:
    """Remove the objects of a run; return a sentence for each object or upload that remains.

    `ObjectTarget.clean` calls this function in a separate process.
    """
    area = from_plain(AreaRef, request["area"])
    place = prefix_of(area)
    bucket, below = Bucket(place, area.access, _PATIENCE), place.below
    keys, uploads = bucket.keys(below), bucket.uploads(below)
    try:
        identity = json.loads(bucket.get(f"{below}{OWNER}"))["identity"]
    except FileNotFoundError:
        if not keys and not uploads:
            return []
        return [f"{place.url} was not removed: its owner is not recorded; by hand: {place.removal(area.access)}"]
    except (ValueError, LookupError, TypeError):
        identity = None
    if (identity,) != area.identity:
        return [f"{place.url} was not removed: it is no longer the area that this run made"]
    names = (request["files"], request["other_files"], request["directories"])
    # Uploads are aborted first, so that they cannot become objects during the removal.
    own_uploads = set(sort_out({key[len(below) :] for key, _ in uploads}, *names).own)
    left = [
        f"an unfinished upload of {bucket.url(key)} was not aborted: this run did not begin it; by hand: "
        f"{place.abortion(key, u, area.access)}"
        for key, u in uploads
        if key[len(below) :] not in own_uploads
    ]
    aborted = [(key, u) for key, u in uploads if key[len(below) :] in own_uploads]
    left += _failures_of_each(
        aborted,
        lambda pair: bucket.abort_upload(*pair),
        lambda pair: f"an unfinished upload of {bucket.url(pair[0])} was not aborted",
        lambda pair: place.abortion(*pair, area.access),
    )
    found = sort_out((key[len(below) :] for key in keys), *names)
    left += [f"{bucket.url(below + key)} was not removed: this run did not make it" for key in found.strange]
    left += _failures_of_each(
        found.own,
        lambda key: bucket.delete(below + key),
        lambda key: f"{bucket.url(below + key)} was not removed",
        lambda key: place.removal_of_one(below + key, area.access),
    )
    if not left and not request["keep_area"]:
        left += _failures_of_each(
            [OWNER],
            lambda key: bucket.delete(below + key),
            lambda key: f"{bucket.url(below + key)} was not removed",
            lambda _key: place.removal(area.access),
        )
    if not request["keep_area"]:
        left += _versions(bucket, area)
    return left


def _versions(bucket: Bucket, area: AreaRef) -> list[str]:
    """Return a sentence on the versions and delete markers that a bucket still keeps below an area (a run's prefix).

    If no versions or markers remain, or if the bucket does not list them, the result is empty.
    """
    try:
        kept = bucket.versions(bucket.place.below)
    except OSError:
        return []
    if not kept:
        return []
    markers = sum(each.is_marker for each in kept)
    return [
        f"{counted(len(kept) - markers, 'version')} and {counted(markers, 'delete marker')} stay below "
        f"{bucket.place.url}: the bucket keeps what is deleted; by hand: {bucket.place.removal(area.access)}"
    ]


def _failures_of_each(
    items: Iterable[T], act: Callable[[T], None], action: Callable[[T], str], command: Callable[[T], str]
) -> list[str]:
    """Perform the action ``act`` for each item, several at a time; return a sentence for each failure.

    ``action`` returns a sentence that states the failure for an item. ``command`` returns the command by which the user
    can repeat the action.
    """

    def do(thing: T) -> str:
        try:
            act(thing)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{action(thing)}: {error.strerror}; by hand: {command(thing)}"
        return ""

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(filter(None, threads.map(do, items)))


def main(words: Sequence[str] | None = None) -> int:
    """Remove the objects that the arguments name; return the exit code.

    0: all objects are removed. 1: a request to the store failed. 4: the arguments do not name the location of a run.
    """
    args = _parser().parse_args(words)
    try:
        place = read_url(args.place)
        _check_place(place)
        endpoints = tuple(filter(None, args.endpoint.split(",")))
        access = Access(endpoints=endpoints, ca_bundle=args.ca_bundle)
        with contextlib.closing(Bucket(place, access, OF_CONTROLLER)) as bucket:
            removed = _removed_upload(bucket, args.upload) if args.upload else _removed(bucket, one=args.one)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 4
    except OSError as error:
        print(f"{args.place}: {error.strerror or error}", file=sys.stderr)
        return 1
    print(f"{place.url}: removed {removed}")
    return 0


def _check_place(place: BucketPrefix) -> None:
    """Raise UsageError if a location cannot be the location of a run."""
    if not any(part.startswith(RUN) for part in place.prefix.split("/")):
        raise UsageError(
            f"{place.url}: this is not the place of a run: no part of it begins with {RUN}.",
            "Name the place that the run named.",
        )


def _removed_upload(bucket: Bucket, upload: str) -> str:
    bucket.abort_upload(bucket.place.prefix, upload)
    return "an unfinished upload"


def _removed(bucket: Bucket, *, one: bool) -> str:
    """Remove one object, or everything below a location. Return a phrase with the number of removed items.

    With ``one``, the prefix of the bucket's place is the key of the object. Unfinished uploads and older versions of
    the removed objects are also removed.
    """
    key = bucket.place.prefix
    prefix = key if one else bucket.place.below

    def is_meant(found: str) -> bool:
        return found == key if one else True

    # Uploads are aborted first, so that they cannot become objects during the removal.
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


def _each(items: Iterable[T], act: Callable[[T], object]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(act, items))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_ckpt.targets.objects.remove",
        description="Remove the objects and uploads of one run from a bucket, only below its place.",
    )
    parser.add_argument("place", help="the place of a run, or an object in it, as the run named it")
    parser.add_argument("--endpoint", default="", help="as --ckpt-endpoint")
    parser.add_argument("--ca-bundle", default="", help="as AWS_CA_BUNDLE")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--one", action="store_true", help="only this object, no objects below it")
    only.add_argument("--upload", default="", help="only this unfinished upload of the object")
    return parser


if __name__ == "__main__":
    sys.exit(main())
