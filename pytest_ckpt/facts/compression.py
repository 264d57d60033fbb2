"""Codecs that compress checkpoints, and the times of saves and loads with a codec and without compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pytest_ckpt.facts.bounds import Bounds, Count, NotNegative

EXTRA = "compressed"
"""The extra of pytest-ckpt with the libraries of all codecs."""


class Codec(NamedTuple):
    """A codec: a library that compresses checkpoints.

    - ``module``: the Python module to import.
    - ``package``: the package to install.
    - ``lowest``, ``highest``, ``level``: the lowest, the highest and the default compression level.
    """

    module: str
    package: str
    lowest: int
    highest: int
    level: int


CODECS = {
    "zstd": Codec(module="zstandard", package="zstandard", lowest=1, highest=22, level=1),
    "lz4": Codec(module="lz4.frame", package="lz4", lowest=0, highest=12, level=0),
}
"""The codecs by name, as in ``--ckpt-strategy=compressed:codec``."""

FRAME_BYTES = 4 << 20
"""The size of a compressed frame before compression: large enough for a codec's best ratio, small enough for partial
reads."""

THREAD_BYTES = 96 << 20
"""The memory of a thread that compresses at the highest level, including the frame before and after compression."""

PAIRS = 3
"""The number of pairs of saves, and of pairs of loads: one with the codec and one without it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compression:
    """The times of saves and loads of the same content, alternately with ``codec`` and uncompressed.

    Times are in seconds. Sizes are in bytes, summed over all ranks.

    - ``content``: a description of the compressed content.
    - ``bytes``: the size of a checkpoint's tensors.
    - ``stored_bytes``: the size of the files after compression. Padding in a file compresses to almost zero bytes.
    - ``save_codec_seconds``, ``load_codec_seconds``: the CPU time in the codec for each save and load, on the rank with
      the most CPU time.
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
