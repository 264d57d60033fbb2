"""Engine ``torch``, the reference workload: the state in memory, torch.save, torch.load with weights_only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

from pytest_ckpt.ranks.content.faults import compare
from pytest_ckpt.ranks.content.generator import TensorKey
from pytest_ckpt.ranks.engines.protocol import Clock, Comparison, LocalFault
from pytest_ckpt.ranks.process.job import EngineOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_ckpt.ranks.content.generator import Content
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.sizing.models import RankLayout, ShardFile, Tensor
    from pytest_ckpt.targets.protocol import Committed, Draft, ReadableFile, Sink

_MOST_FAULTS = 20


class _Out:
    """What torch.save writes to: torch turns what its file raises into errors of its own, at times without cause."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of ``data``."""
        try:
            return self._sink.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Nothing is held back."""


class TorchEngine:
    """Keeps the rank's whole state in memory, as a training process does."""

    def __init__(
        self, shard: RankLayout, content: Content, activity: Activity, options: EngineOptions | None = None
    ) -> None:
        torch.set_num_threads(1)
        self._options = options or EngineOptions()
        self._files = shard.files
        self._rank = shard.rank
        self._content = content
        self._activity = activity
        self._state: dict[str, dict[str, torch.Tensor]] = {}
        self._copy: dict[str, dict[str, torch.Tensor]] = {}
        self._is_staged = False
        self._sizes: dict[str, int] = {}
        self._loaded: dict[str, dict[str, torch.Tensor] | LocalFault] = {}

    def facts(self) -> dict[str, str]:
        """Return torch's version and how it is called."""
        return {
            "torch": torch.__version__,
            "save": "torch.save to an unbuffered file, fsync",
            "load": "torch.load(weights_only=True) from an unbuffered file",
        }

    def fill(self, checkpoint: int) -> None:
        """Write the content of ``checkpoint`` over the state, which is made at the first call."""
        if not self._state:
            self._state = self._empty()
        if self._options.stages and not self._copy:
            # Touched before the clock runs: a job makes its staging buffer once.
            self._copy = self._empty()
            for _, file, tensor in _numbered(self._files):
                _bytes(self._copy[file.name][tensor.name])[:] = 0
        for number, file, tensor in _numbered(self._files):
            place = TensorKey(checkpoint=checkpoint, rank=self._rank, tensor=number)
            self._content.fill(_bytes(self._state[file.name][tensor.name]), place)

    def state(self) -> list[NDArray[np.uint8]]:
        """Return the memory of the tensors."""
        return [_bytes(tensor) for tensors in self._state.values() for tensor in tensors.values()]

    def stage(self) -> int:
        """Copy every tensor into the staging buffer."""
        copied = 0
        for _, file, tensor in _numbered(self._files):
            state = self._state[file.name][tensor.name]
            self._copy[file.name][tensor.name].copy_(state)
            copied += state.nbytes
        self._is_staged = True
        return copied

    def save(self, draft: Draft, clock: Clock) -> None:
        """Write the files one after the other, each made durable before the next."""
        for file in self._files:
            sink = draft.create(file.name, None)
            try:
                with clock.phase("write", file.name):
                    self._write(file, sink)
            except BaseException:
                sink.abort()
                raise
            self._sizes[file.name] = sink.finish().bytes
        self._is_staged = False

    def load_steps(self) -> int:
        """Everything is loaded before anything is compared."""
        return 1

    def load(self, committed: Committed, step: int, clock: Clock) -> int:
        """Load the files one after the other; one that torch cannot read becomes a fault, not an error."""
        self._state, self._copy, self._loaded = {}, {}, {}
        loaded_bytes = 0
        for file in self._files:
            source = committed.file(file.name)
            try:
                with clock.phase("read", file.name):
                    self._loaded[file.name] = self._read(file, source)
                if isinstance(loaded := self._loaded[file.name], dict):
                    loaded_bytes += sum(tensor.nbytes for tensor in loaded.values())
            finally:
                source.close()
        return loaded_bytes

    def verify(self, checkpoint: int) -> Comparison:
        """Compare every byte of every tensor that was loaded; a file is let go once it has been compared."""
        checked, count = 0, 0
        faults: list[LocalFault] = []
        numbers = {(file.name, tensor.name): number for number, file, tensor in _numbered(self._files)}
        for file in self._files:
            loaded = self._loaded.pop(file.name)
            if isinstance(loaded, LocalFault):
                count += 1
                faults.append(loaded)
                continue
            for tensor in file.tensors:
                place = TensorKey(checkpoint=checkpoint, rank=self._rank, tensor=numbers[file.name, tensor.name])
                data = loaded[tensor.name]
                start, _ = self._options.span(tensor.elements)
                pages, findings = compare(self._content, _bytes(data), place, start * data.element_size())
                checked += data.nbytes
                count += pages
                faults.extend(LocalFault.of(found, file.name, tensor.name) for found in findings)
            del loaded
        return Comparison(bytes_checked=checked, fault_count=count, faults=tuple(faults[:_MOST_FAULTS]))

    def release(self) -> None:
        """Let go of the state and of what was loaded."""
        self._state, self._copy, self._loaded = {}, {}, {}

    def _empty(self) -> dict[str, dict[str, torch.Tensor]]:
        return {
            file.name: {t.name: torch.empty(t.elements, dtype=_dtype(t)) for t in file.tensors} for file in self._files
        }

    def _write(self, file: ShardFile, sink: Sink) -> None:
        out: Any = _Out(sink)
        try:
            torch.save((self._copy if self._is_staged else self._state)[file.name], out)
        except Exception as error:
            raise out.error or error from None

    def _read(self, file: ShardFile, source: ReadableFile) -> dict[str, torch.Tensor] | LocalFault:
        size, readable = source.size, cast("Any", source)
        try:
            if self._options.parts > 1:
                return self._read_part(file, source)
            loaded = torch.load(readable, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged pickle ends in almost any of them
            # An OSError that no read met is a seek to where a broken container sent torch.
            if source.error:
                raise source.error from None
            kind: Any = "short" if size < file.bytes else "unreadable"
            says = str(error).splitlines()[0] if str(error) else type(error).__name__
            detail = f"torch.load cannot read it ({size} bytes, {file.bytes} of tensors expected): {says}"
            return LocalFault(kind=kind, file=file.name, tensor="", offset=0, bytes=size, detail=detail)
        written = self._sizes.get(file.name, size)
        if size != written:
            detail = f"the file has {size} bytes, {written} were written"
            return LocalFault(kind="foreign", file=file.name, tensor="", offset=written, bytes=size, detail=detail)
        if problem := _shape_problem(file, loaded):
            return LocalFault(kind="foreign", file=file.name, tensor="", offset=0, bytes=size, detail=problem)
        return loaded  # type: ignore[no-any-return]

    def _read_part(self, file: ShardFile, source: ReadableFile) -> dict[str, torch.Tensor] | LocalFault:
        """Read this reader's part of every tensor; where they stand is asked of torch's own reader of the container."""
        container = torch._C.PyTorchFileReader(cast("Any", source))
        # Records are numbered in the order in which the tensors were saved.
        offset_of = container.get_record_offset  # type: ignore[attr-defined]
        places = [offset_of(f"data/{number}") for number in range(len(file.tensors))]
        loaded = {}
        for tensor, place in zip(file.tensors, places, strict=True):
            start, stop = self._options.span(tensor.elements)
            data = loaded[tensor.name] = torch.empty(stop - start, dtype=_dtype(tensor))
            offset = start * data.element_size()
            source.seek(place + offset)
            got = source.readinto(_bytes(data))
            if got < data.nbytes:
                detail = f"the file ends after {got} of {data.nbytes} bytes of a tensor's part"
                return LocalFault(
                    kind="short", file=file.name, tensor=tensor.name, offset=offset, bytes=data.nbytes, detail=detail
                )
        return loaded


def _shape_problem(file: ShardFile, loaded: Any) -> str:
    if not isinstance(loaded, dict) or list(loaded) != [t.name for t in file.tensors]:
        return "the file holds other tensors than were saved in it"
    for tensor in file.tensors:
        seen = loaded[tensor.name]
        if not isinstance(seen, torch.Tensor) or not seen.is_contiguous() or seen.requires_grad:
            return f"{tensor.name} is not the plain tensor that was saved"
        if tuple(seen.shape) != (tensor.elements,) or seen.dtype != _dtype(tensor):
            was = f"{tensor.elements} {tensor.dtype}"
            return f"tensor {tensor.name} has {tuple(seen.shape)} {seen.dtype}, {was} were saved"
    return ""


def _numbered(files: tuple[ShardFile, ...]) -> list[tuple[int, ShardFile, Tensor]]:
    """Number the tensors of a rank in the order of its files; the number is part of their content."""
    pairs = [(file, tensor) for file in files for tensor in file.tensors]
    return [(number, file, tensor) for number, (file, tensor) in enumerate(pairs)]


def _dtype(tensor: Tensor) -> torch.dtype:
    return {"float16": torch.float16, "float32": torch.float32}[tensor.dtype]


def _bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    return tensor.view(torch.uint8).numpy()


def make(
    *, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
) -> TorchEngine:
    """Return the engine of a rank's files. The ranks need not speak to each other for it."""
    del group
    return TorchEngine(shard, content, activity, options)
