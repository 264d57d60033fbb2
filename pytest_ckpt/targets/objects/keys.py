"""The keys of a run's objects: the same file names as on other targets, below the run's own prefix."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_ckpt.facts.targets import Access, AreaRef, CheckpointRef, removal_of
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.owner import OWNER

RUN = "pytest-ckpt-"
MARKER = "_COMMITTED"
"""The name of the object that commits a checkpoint and lists all its other objects."""

TRIAL = "TRIAL"
"""The name of the object that tests permissions before a run."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_CHECKPOINT = re.compile(r"checkpoint-(\d{4,})(?:-again-(\d+))?")
# A key, including everything after the prefix, must not exceed 1,024 bytes.
_MAXIMUM_PREFIX_BYTES = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketPrefix:
    """The location of a target or of a run: a bucket, and a prefix without a trailing slash.

    An empty prefix means the whole bucket.
    """

    bucket: str
    prefix: str
    scheme: str = "s3"

    @property
    def url(self) -> str:
        """The URL of the location, such as s3://bucket/prefix."""
        return self.url_of(self.prefix) if self.prefix else f"{self.scheme}://{self.bucket}"

    def url_of(self, key: str) -> str:
        """Return the URL of an object, such as s3://bucket/key."""
        return f"{self.scheme}://{self.bucket}/{key}"

    @property
    def below(self) -> str:
        """The prefix of every key in the location: the location's prefix with a trailing slash."""
        return f"{self.prefix}/" if self.prefix else ""

    def area(self, run_id: str) -> BucketPrefix:
        """Return the location of a run below this location."""
        return dataclasses.replace(self, prefix=f"{self.below}{RUN}{run_id}")

    def removal(self, access: Access) -> str:
        """Return the command that removes everything below the location."""
        return removal_of(self.scheme, self.url, access)

    def removal_of_one(self, key: str, access: Access) -> str:
        """Return the command that removes an object."""
        return f"{removal_of(self.scheme, self.url_of(key), access)} --one"

    def abortion(self, key: str, upload: str, access: Access) -> str:
        """Return the command that aborts an unfinished upload."""
        return f"{removal_of(self.scheme, self.url_of(key), access)} --upload={shlex.quote(upload)}"


def read_prefix(location: str, scheme: str = "s3", option: str = "--ckpt-target") -> BucketPrefix:
    """Parse the text after ``s3://``, ``az://`` or ``gs://``; return the bucket and the prefix in this text.

    Raises UsageError, which names the ``option``, if the text is invalid.
    """
    bucket, _, prefix = location.partition("/")
    name, prefix = f"{option} {scheme}://{location}", prefix.rstrip("/")
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(
            f"{name}: '{bucket}' is not a name of a {'container' if scheme == 'az' else 'bucket'}.",
            f"Name one and a prefix, such as {scheme}://checkpoints/acceptance: 3 to 63 small letters, digits, dots "
            "and hyphens.",
        )
    if prefix.startswith("/") or "//" in prefix or {".", ".."} & set(prefix.split("/")):
        raise UsageError(f"{name}: the prefix has an empty part, or one of dots.", "Name one such as acceptance/array.")
    if len(prefix.encode()) > _MAXIMUM_PREFIX_BYTES:
        raise UsageError(
            f"{name}: the prefix has {len(prefix.encode())} bytes.", f"Name one of at most {_MAXIMUM_PREFIX_BYTES}."
        )
    return BucketPrefix(bucket=bucket, prefix=prefix, scheme=scheme)


def read_url(url: str) -> BucketPrefix:
    """Return the bucket and the prefix in a URL. Raises UsageError."""
    scheme, _, location = url.partition("://")
    return read_prefix(location, scheme)


def prefix_of(area: AreaRef) -> BucketPrefix:
    """Return the bucket and the prefix of an area (the location of a run), from the URL of the area."""
    return read_url(area.location)


def checkpoint_key(ref: CheckpointRef) -> str:
    """Return the common prefix of a checkpoint's keys, relative to the run's prefix.

    Each save has a different common prefix.
    """
    again = f"-again-{ref.attempt}" if ref.attempt else ""
    return f"{ref.subject}/checkpoint-{ref.number:04d}{again}"


def checkpoint_number(name: str) -> int | None:
    """Return the number of the checkpoint that ``name``, a part of a key, identifies; None for other text."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixKeys:
    """The keys below a run's prefix: ``own`` are keys of the run, ``strange`` are foreign keys."""

    own: tuple[str, ...]
    strange: tuple[str, ...]


def sort_out(
    keys: Iterable[str],
    files: Mapping[str, Sequence[str]],
    small_files: Mapping[str, Sequence[str]],
    directories: Sequence[str],
) -> PrefixKeys:
    """Divide the keys below a run's prefix into keys that the run may have created, and foreign keys.

    ``files`` is {subject: names of files in checkpoints}. ``small_files`` is {subject: names of files next to
    checkpoints}. All keys below ``directories`` are the run's own. If a checkpoint contains a foreign key, the marker
    of the checkpoint is in neither group. The marker is therefore not removed. The key of the owner's record is also in
    neither group.
    """
    own, markers, strange = [], [], []
    for key in keys:
        parts = key.split("/")
        of_checkpoint = len(parts) == 3 and parts[0] in files and checkpoint_number(parts[1]) is not None
        if key == OWNER:
            continue
        if of_checkpoint and parts[2] == MARKER:
            markers.append(key)
        elif (
            (of_checkpoint and parts[2] in files[parts[0]])
            or (len(parts) == 2 and parts[1] in small_files.get(parts[0], ()))
            or (len(parts) > 1 and parts[0] in directories)
            or key == TRIAL
        ):
            own.append(key)
        else:
            strange.append(key)
    kept = {key.rpartition("/")[0] for key in strange}
    # A checkpoint must not look committed while its objects are deleted.
    return PrefixKeys(
        own=(*(key for key in markers if key.rpartition("/")[0] not in kept), *own), strange=tuple(strange)
    )
