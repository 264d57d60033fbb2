"""Lists the files of an existing checkpoint, with their sizes and times, without reading their content."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.user_files import answering, resolved_user_path

MAXIMUM_LISTED = 200_000
"""The maximum number of files of a listing; a pattern has far fewer."""

OPTION = "--checkpoint"
_SCHEME = "s3://"


class Listed(NamedTuple):
    """One file: its name relative to the checkpoint, its size in bytes, and the time of its last change in seconds."""

    name: str
    bytes: int
    changed: float


def list_checkpoint(place: str, endpoint: str) -> list[Listed]:
    """Return the files of a directory, or of a prefix of a bucket (``s3://``).

    At most `MAXIMUM_LISTED` + 1 files are returned. ``endpoint`` is the URL of an object store; if it is empty, the
    environment defines the URL. Raises UsageError if ``place`` cannot be listed.
    """
    if "://" in place and not place.startswith(_SCHEME):
        raise UsageError(
            f"{OPTION} {place:.200}: a directory or a prefix such as s3://checkpoints/step-100 is expected.",
            "Copy the checkpoint's names and sizes to a directory, or mount the store.",
        )
    listing = _of_bucket(place.removeprefix(_SCHEME), endpoint) if place.startswith(_SCHEME) else _of_directory(place)
    return list(itertools.islice(listing, MAXIMUM_LISTED + 1))


def _of_directory(text: str) -> Iterator[Listed]:
    top = resolved_user_path(text, OPTION)
    with answering(f"{OPTION} {text}"):
        if not stat.S_ISDIR(top.stat().st_mode):
            raise UsageError(f"{OPTION} {text}: it is not a directory.", "Name the directory of one checkpoint.")
        yield from _below(top, "")


def _below(directory: Path, prefix: str) -> Iterator[Listed]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.is_file():
                state = entry.stat()
                yield Listed(prefix + entry.name, state.st_size, state.st_mtime)


def _of_bucket(location: str, endpoint: str) -> Iterator[Listed]:
    from pytest_ckpt.targets.objects.client import Bucket  # noqa: PLC0415 - only for a bucket
    from pytest_ckpt.targets.objects.keys import read_prefix  # noqa: PLC0415

    place = read_prefix(location, option=OPTION)
    bucket = Bucket(place, Access(endpoints=(endpoint,) if endpoint else ()))
    with answering(f"{OPTION} {place.url}"):
        try:
            for key, size, changed in bucket.states_below(place.below):
                # A marker object that stores use for directories.
                if not key.endswith("/"):
                    yield Listed(key.removeprefix(place.below), size, datetime.fromisoformat(changed).timestamp())
        finally:
            bucket.close()
