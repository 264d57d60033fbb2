"""Judge of saves that pass a codec: whether they are slower than plain ones, and what the codec took. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.judging.decision import Decision, measured_as
from pytest_ckpt.judging.restore_patterns import without_pattern
from pytest_ckpt.support.units import counted, format_bytes, format_ratio, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.compression import Compression
    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.verdict import Reason
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_SLOWER = 1.05
# From this share of a save on, what a rank's cores spend in the codec is what the save waits for.
_LIMITS_FROM = 0.5


def judge_compression(measurement: Measurement, _limits: ClusterLimits, *, maximum: float = MAXIMUM_SLOWER) -> Decision:
    """Saves through the codec take no longer than plain ones of the same content, taken in turns."""
    found = measurement.patterns.compression if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("compression",))
    saves, loads = (
        statistics.median(compressed) / statistics.median(plain)
        for compressed, plain in (
            (found.compressed_save_seconds, found.plain_save_seconds),
            (found.compressed_load_seconds, found.plain_load_seconds),
        )
    )
    detail = tuple(_describe(found))
    because = (
        f"Compressed saves took {format_ratio(saves, maximum)} x the time of plain ones (at most {maximum}), loads "
        f"{loads:.2f} x. "
        f"{found.codec} stored {found.stored_bytes / found.bytes:.2f} of content that is made to compress as one "
        "measured training state: a job's own data may compress more or less."
    )
    if found.fault_count:
        faults = counted(found.fault_count, "fault")
        because = f"{faults} in what was loaded for this comparison, so its times are not valid. {because}"
        return measured_as("wrong bytes", saves, maximum, "compressed / plain", because, detail)
    if saves > maximum:
        codec, save = statistics.median(found.save_codec_seconds), statistics.median(found.compressed_save_seconds)
        took = f"{format_seconds(codec)} of a rank's processor in {format_seconds(save)}"
        cause = (
            f"The codec took {took}: the client's processor is the limit, not the storage."
            if codec >= save * _LIMITS_FROM
            else f"The codec took {took}: the rest is waiting, for the storage or for a processor."
        )
        because = f"{because} {cause}"
    reason: Reason = "over limit" if saves > maximum else "met"
    return measured_as(reason, saves, maximum, "compressed / plain", because, detail)


def _describe(found: Compression) -> Iterator[str]:
    yield f"{format_bytes(found.bytes)} of tensors, stored in {format_bytes(found.stored_bytes)}"
    yield f"content: {found.content}"
    for kind, plain, compressed, codec in (
        ("saves", found.plain_save_seconds, found.compressed_save_seconds, found.save_codec_seconds),
        ("loads", found.plain_load_seconds, found.compressed_load_seconds, found.load_codec_seconds),
    ):
        yield (
            f"{kind}: plain {', '.join(map(format_seconds, plain))}; compressed "
            f"{', '.join(map(format_seconds, compressed))}; in the codec, of the rank that took most, "
            f"{', '.join(map(format_seconds, codec))} of its processor"
        )
