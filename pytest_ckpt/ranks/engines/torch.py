"""Engine ``torch``, the reference engine: torch.save writes the state, torch.load reads it with weights_only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch

from pytest_ckpt.ranks.engines.protocol import Clock, Comparison, LocalFault, write_in_order
from pytest_ckpt.ranks.engines.whole_state import CompleteState, Loaded, compare_loaded, load_files, loaded_bytes
from pytest_ckpt.ranks.process.job import EngineOptions

if TYPE_CHECKING:
    from pytest_ckpt.ranks.content import Bytes, Content
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.sizing.models import RankLayout, ShardFile, Tensor
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Draft, ReadableFile, Sink


class _Output:
    """The file object for torch.save.

    It keeps the OSError of a failed write, because torch may raise another error instead.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all of ``data``. Return the number of bytes."""
        try:
            return self._sink.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Do nothing, because writes are not buffered; torch requires this method."""


class TorchEngine:
    """An engine that keeps the rank's complete state in memory, as a training process does."""

    def __init__(
        self, shard: RankLayout, content: Content, activity: Activity, options: EngineOptions | None = None
    ) -> None:
        torch.set_num_threads(1)
        self._options = options or EngineOptions()
        self._files = shard.files
        self._rank = shard.rank
        self._content = content
        self._activity = activity
        self._whole = CompleteState(
            shard.files, shard.rank, content, empty=_empty, bytes_of=_bytes, options=self._options
        )
        self._sizes: dict[str, int] = {}
        self._loaded: Loaded = {}

    def facts(self) -> dict[str, str]:
        """Return torch's version, and a description of how this engine calls torch."""
        return {
            "torch": torch.__version__,
            "save": "torch.save to an unbuffered file, fsync",
            "load": "torch.load(weights_only=True) from an unbuffered file",
        }

    def fill(self, checkpoint: int) -> None:
        """Write the content of checkpoint number ``checkpoint`` into the state. The first call allocates the state."""
        self._whole.fill(checkpoint)

    def state(self) -> list[Bytes]:
        """Return the memory of the tensors."""
        return self._whole.memory()

    def stage(self) -> int:
        """Copy every tensor into the staging buffer. Return the number of bytes copied."""
        return self._whole.stage()

    def save(self, draft: Draft, clock: Clock) -> None:
        """Write the files one after the other; each file is durable before the next one is begun."""
        for file in self._files:
            self._sizes[file.name] = write_in_order(draft, clock, file.name, partial(self._write, file))
        self._whole.saved()

    def load_steps(self) -> int:
        """Return 1, because all data are loaded before they are compared."""
        return 1

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Load the files one after the other. Return the number of tensor bytes loaded.

        If torch cannot read a file, a fault is recorded, and no error is raised.
        """
        self.release()
        self._loaded = load_files(self._files, committed, clock, self._tensors_of)
        return loaded_bytes(self._loaded)

    def verify(self, checkpoint: int) -> Comparison:
        """Compare every byte of every loaded tensor. Free each file after its comparison."""
        return compare_loaded(self._loaded, self._files, self._rank, checkpoint, self._content, self._options)

    def release(self) -> None:
        """Free the state and the loaded data."""
        self._whole.clear()
        self._loaded = {}

    def _write(self, file: ShardFile, sink: Sink) -> None:
        out: Any = _Output(sink)
        try:
            torch.save(self._whole.to_save()[file.name], out)
        except Exception as error:
            raise out.error or error from None

    def _tensors_of(self, file: ShardFile, source: ReadableFile) -> dict[str, Bytes] | LocalFault:
        tensors = self._read(file, source)
        return (
            tensors if isinstance(tensors, LocalFault) else {name: _bytes(tensor) for name, tensor in tensors.items()}
        )

    def _read(self, file: ShardFile, source: ReadableFile) -> dict[str, torch.Tensor] | LocalFault:
        size, readable = source.size, cast("Any", source)
        try:
            if self._options.parts > 1:
                return self._read_part(file, source)
            loaded = torch.load(readable, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged pickle may raise almost any exception
            # An OSError that does not come from a read is caused by an invalid offset in a damaged container.
            if source.error:
                raise source.error from None
            kind: Any = "short" if size < file.bytes else "unreadable"
            message = str(error).splitlines()[0] if str(error) else type(error).__name__
            detail = f"torch.load cannot read it ({size} bytes, {file.bytes} of tensors expected): {message}"
            return LocalFault(kind=kind, file=file.name, tensor="", offset=0, bytes=size, detail=detail)
        written = self._sizes.get(file.name, size)
        if size != written:
            detail = f"the file has {size} bytes, {written} were written"
            return LocalFault(kind="foreign", file=file.name, tensor="", offset=written, bytes=size, detail=detail)
        if problem := _shape_problem(file, loaded):
            return LocalFault(kind="foreign", file=file.name, tensor="", offset=0, bytes=size, detail=problem)
        return loaded  # type: ignore[no-any-return]

    def _read_part(self, file: ShardFile, source: ReadableFile) -> dict[str, torch.Tensor] | LocalFault:
        """Return {tensor name: data}, where the data are this reader's part of the tensor.

        Several readers may share a file. Each of these readers reads a part of every tensor. torch's file reader finds
        the offsets of the tensors in the file. If the file is too short, return a fault.
        """
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
        return "the file contains different tensors from those saved in it"
    for tensor in file.tensors:
        actual = loaded[tensor.name]
        if not isinstance(actual, torch.Tensor) or not actual.is_contiguous() or actual.requires_grad:
            return f"{tensor.name} is not the plain tensor that was saved"
        if tuple(actual.shape) != (tensor.elements,) or actual.dtype != _dtype(tensor):
            was = f"{tensor.elements} {tensor.dtype}"
            return f"tensor {tensor.name} has {tuple(actual.shape)} {actual.dtype}, {was} were saved"
    return ""


def _dtype(tensor: Tensor) -> torch.dtype:
    return {"float16": torch.float16, "float32": torch.float32, "uint8": torch.uint8}[tensor.dtype]


def _empty(tensor: Tensor) -> torch.Tensor:
    return torch.empty(tensor.elements, dtype=_dtype(tensor))


def _bytes(tensor: torch.Tensor) -> Bytes:
    return tensor.view(torch.uint8).numpy()


def make(
    *, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
) -> TorchEngine:
    """Return the engine for a rank's files. It does not communicate with other ranks."""
    del group
    return TorchEngine(shard, content, activity, options)
