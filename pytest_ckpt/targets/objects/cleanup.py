"""Removes a run's objects and unfinished uploads, by the names that it may have made; in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.support.units import counted
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.keys import prefix_of, sort_out
from pytest_ckpt.targets.objects.wire import Patience
from pytest_ckpt.targets.owner import OWNER

T = TypeVar("T")

_AT_ONCE = 8
_PATIENCE = Patience(connect_seconds=10, silent_seconds=20, attempts=3, bears=True)


def clean_as_asked(asked: Mapping[str, Any]) -> list[str]:
    """Do what `ObjectTarget.clean` asks, in its process; return what was left, one sentence each."""
    area = from_plain(AreaRef, asked["area"])
    place = prefix_of(area)
    bucket, below = Bucket(place, area.access, _PATIENCE), place.below
    keys, uploads = bucket.keys(below), bucket.uploads(below)
    try:
        identity = json.loads(bucket.get(f"{below}{OWNER}"))["identity"]
    except FileNotFoundError:
        if not keys and not uploads:
            return []
        return [f"{place.url} was not removed: it no longer says whose it is; by hand: {place.removal(area.access)}"]
    except (ValueError, LookupError, TypeError):
        identity = None
    if (identity,) != area.identity:
        return [f"{place.url} was not removed: it is no longer the area that this run made"]
    names = (asked["files"], asked["beside"], asked["folders"])
    # An upload that is aborted first cannot become an object meanwhile.
    own_uploads = set(sort_out({key[len(below) :] for key, _ in uploads}, *names).own)
    left = [
        f"an unfinished upload of {bucket.url(key)} was not aborted: this run did not begin it; by hand: "
        f"{place.abortion(key, u, area.access)}"
        for key, u in uploads
        if key[len(below) :] not in own_uploads
    ]
    aborted = [(key, u) for key, u in uploads if key[len(below) :] in own_uploads]
    left += _each(
        aborted,
        lambda pair: bucket.abort_upload(*pair),
        lambda pair: f"an unfinished upload of {bucket.url(pair[0])} was not aborted",
        lambda pair: place.abortion(*pair, area.access),
    )
    found = sort_out((key[len(below) :] for key in keys), *names)
    left += [f"{bucket.url(below + key)} was not removed: this run did not make it" for key in found.strange]
    left += _each(
        found.own,
        lambda key: bucket.delete(below + key),
        lambda key: f"{bucket.url(below + key)} was not removed",
        lambda key: place.removal_of_one(below + key, area.access),
    )
    if not left and not asked["keep_area"]:
        left += _each(
            [OWNER],
            lambda key: bucket.delete(below + key),
            lambda key: f"{bucket.url(below + key)} was not removed",
            lambda _key: place.removal(area.access),
        )
    if not asked["keep_area"]:
        left += _versions(bucket, area)
    return left


def _versions(bucket: Bucket, area: AreaRef) -> list[str]:
    """Say what a bucket keeps of what was deleted; nothing where it keeps none, or does not tell."""
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


def _each(
    things: Iterable[T], act: Callable[[T], None], what: Callable[[T], str], command: Callable[[T], str]
) -> list[str]:
    """Do something with each, several at a time; return a sentence with a command for each that fails."""

    def do(thing: T) -> str:
        try:
            act(thing)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{what(thing)}: {error.strerror}; by hand: {command(thing)}"
        return ""

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(filter(None, threads.map(do, things)))
