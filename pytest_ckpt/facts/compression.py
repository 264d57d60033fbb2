"""Codecs that compress checkpoints, and what saving by one of them took beside saving plainly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pytest_ckpt.facts.bounds import Bounds, Count, NotNegative

EXTRA = "compressed"
"""The extra of pytest-ckpt that brings the libraries of all codecs."""


class Codec(NamedTuple):
    """A codec: the module of its library, the levels that it has, and the one where none is said."""

    module: str
    package: str
    lowest: int
    highest: int
    level: int


CODECS = {
    "zstd": Codec(module="zstandard", package="zstandard", lowest=1, highest=22, level=1),
    "lz4": Codec(module="lz4.frame", package="lz4", lowest=0, highest=12, level=0),
}
"""By the name in ``--ckpt-strategy=compressed:codec``."""

FRAME_BYTES = 4 << 20
"""What is compressed at a time: large enough for a codec's best ratio, small enough for reads of a part."""

THREAD_BYTES = 96 << 20
"""What a thread needs to compress a frame at the highest level, with the frame before and behind the codec."""

PAIRS = 3
"""Saves and loads of each kind that are compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compression:
    """Saves and loads of the same content by ``codec`` and plainly, taken in turns. Seconds, bytes of all ranks.

    ``bytes`` are those of a checkpoint's tensors, ``stored_bytes`` those of its files behind the codec: padding of
    files, which compresses to nothing, flatters no ratio.
    ``save_codec_seconds`` and ``load_codec_seconds`` are the processor's time in the codec, of the rank that had most,
    one for each save and load; ``content`` says what was compressed.
    """

    codec: str
    content: str
    bytes: Annotated[int, Bounds(ge=1, le=10**18)]
    stored_bytes: Count
    plain_save_seconds: tuple[NotNegative, ...]
    compressed_save_seconds: tuple[NotNegative, ...]
    plain_load_seconds: tuple[NotNegative, ...]
    compressed_load_seconds: tuple[NotNegative, ...]
    save_codec_seconds: Annotated[tuple[NotNegative, ...], Bounds(min_length=1)]
    load_codec_seconds: Annotated[tuple[NotNegative, ...], Bounds(min_length=1)]
    fault_count: Count = 0
