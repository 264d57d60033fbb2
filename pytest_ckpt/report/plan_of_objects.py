"""What a save is on an object store, as lines of a plan: its objects, their keys and parts, and its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.targets import TARGETS, CheckpointRef
from pytest_ckpt.sizing.files import files_of
from pytest_ckpt.support.units import counted, format_bytes
from pytest_ckpt.targets.objects.keys import MARKER, RUN, checkpoint_key
from pytest_ckpt.targets.objects.parts import MAXIMUM_PARTS, part_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.sizing.plan import PlannedCheckpoint

_STREAM = "stream"
"""The engine that says how large a file is when it begins it."""


def objects_of(planned: PlannedCheckpoint, settings: Settings) -> Iterator[str]:
    """Yield the lines of a checkpoint, of a full save; none where the target is no object store."""
    scheme, found, location = (settings.target or "").partition("://")
    if not found or scheme not in TARGETS or not TARGETS[scheme].is_remote:
        return
    first = CheckpointRef(subject=planned.subject.slug, number=1)
    place = f"{scheme}://{location.rstrip('/')}/{RUN}…/{checkpoint_key(first)}/"
    if commit := planned.engine.files.commit:
        yield (
            f"  keys   {counted(planned.files, 'object')} a checkpoint below {place}; parts and requests are those of "
            f"the engine's library, which commits by {commit}"
        )
        return
    sizes = [f.bytes for shard in planned.layout.ranks() for f in files_of(shard, planned.engine.files)]
    steps = [part_bytes(size if planned.engine.name == _STREAM else None, settings.io_size_bytes) for size in sizes]
    numbers = [-(-size // step) if size > step else 0 for size, step in zip(sizes, steps, strict=True)]
    # Looked for before and asked for behind; begun and ended where there are parts, else put. So is the marker.
    requests = sum(2 + (number + 2 if number else 1) for number in numbers) + 2
    yield (
        f"  keys   {counted(len(sizes), 'object')} and {MARKER} a checkpoint below {place}, "
        f"{counted(sum(numbers), 'part')} of {format_bytes(max(steps))}, at most {max(numbers):,} of one object "
        f"({MAXIMUM_PARTS:,} are allowed); about {counted(requests, 'request')} a save"
    )
