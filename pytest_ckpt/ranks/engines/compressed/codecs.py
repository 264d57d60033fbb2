"""Codecs: from bytes to fewer and back, the time that they take of the processor, and what damage they find."""

from __future__ import annotations

import importlib
import importlib.metadata
import threading
import time
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.compression import CODECS

if TYPE_CHECKING:
    from pytest_ckpt.targets.protocol import Buffer


class DamagedError(Exception):
    """What was read is not what was compressed."""


class CodecInUse:
    """The codec that ``--ckpt-compress`` names, such as ``zstd:1``; used by all threads of a rank.

    ``seconds`` is the processor's time that it took in all of them.
    """

    def __init__(self, stated: str) -> None:
        """Raises ImportError where its library is not installed."""
        self._name, _, level = stated.partition(":")
        self._level = int(level)
        self._library: Any = importlib.import_module(CODECS[self._name].module)
        self._error: type[Exception] = self._library.ZstdError if self._name == "zstd" else RuntimeError
        self._lock, self._of_thread = threading.Lock(), threading.local()
        self.seconds = 0.0

    @property
    def words(self) -> str:
        """The codec, its level and its library, for the report."""
        package = CODECS[self._name].package
        return f"{self._name} at level {self._level}, by {package} {importlib.metadata.version(package)}"

    def compress(self, data: Buffer) -> bytes:
        """Return a frame that holds ``data`` and a checksum of it."""
        began = time.thread_time()
        if self._name == "zstd":
            frame: bytes = self._zstd("compressor").compress(data)
        else:
            frame = self._library.compress(memoryview(data), compression_level=self._level, content_checksum=True)
        self._add(began)
        return frame

    def decompress(self, frame: bytes, size: int) -> bytes:
        """Return the ``size`` bytes that a frame holds. Raises DamagedError."""
        began = time.thread_time()
        try:
            data = self._of_zstd(frame, size) if self._name == "zstd" else self._of_lz4(frame, size)
        except self._error as error:
            raise DamagedError(f"{self._name} says: {error}") from None
        finally:
            self._add(began)
        if len(data) != size:
            raise DamagedError(f"it holds {len(data)} bytes instead of {size}")
        return data

    def _of_zstd(self, frame: bytes, size: int) -> bytes:
        # The library makes room for what the frame says of its size, which damage may change.
        if self._library.get_frame_parameters(frame).content_size != size:
            raise DamagedError(f"its head does not say that it holds {size} bytes")
        data: bytes = self._zstd("decompressor").decompress(frame)
        return data

    def _of_lz4(self, frame: bytes, size: int) -> bytes:
        reader = self._library.LZ4FrameDecompressor()
        data: bytes = reader.decompress(frame, max_length=size)
        if not reader.eof:
            raise DamagedError(f"it does not end after {size} bytes")
        return data

    def _zstd(self, what: str) -> Any:
        """Return what this thread compresses or decompresses with: two threads may not share one."""
        made = getattr(self._of_thread, what, None)
        if made is None:
            made = (
                self._library.ZstdCompressor(level=self._level, write_checksum=True)
                if what == "compressor"
                else self._library.ZstdDecompressor()
            )
            setattr(self._of_thread, what, made)
        return made

    def _add(self, began: float) -> None:
        took = time.thread_time() - began
        with self._lock:
            self.seconds += took
