"""The table of engines, one row per engine. An engine is the code that writes and reads checkpoints. Pure.

These rows define the choices of ``--ckpt-engine``, the planned memory, the modules that ranks import, and the
documentation. Other packages add rows by the hook ``pytest_ckpt_engines`` or by an entry point in the group
``pytest_ckpt.engines``. `pytest_ckpt.config.engines` reads both sources.

If pytest-ckpt is installed, every pytest run imports this module. Rows are NamedTuples because Python creates these
classes faster than dataclasses.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from pytest_ckpt.facts.file_rules import (
    CONSOLIDATED_FILES,
    DCP_FILES,
    DCP_OBJECTS,
    MEGATRON_FILES,
    OF_LAYOUT,
    SAFETENSORS_FILES,
    FileRule,
)

Commits = Literal["store", "engine"]

NOT_DIRECT = "not direct"
"""The first words of the engine fact ``direct`` if a considerable share of the bytes passed through a page cache."""


class MemoryRule(NamedTuple):
    """The memory that an engine needs on a rank: the sum of three terms.

    - ``process_bytes``: a constant number of bytes, the same for every model.
    - ``state_share``: multiplied by the bytes of the rank's saved tensors.
    - ``file_share``: multiplied by the bytes of the rank's largest file.
    """

    process_bytes: int
    state_share: float = 0.0
    file_share: float = 0.0

    def state_bytes(self, shard_bytes: int, file_bytes: int = 0) -> int:
        """Return the part of the memory in bytes that depends on the model.

        ``shard_bytes`` is the size of the rank's tensors, ``file_bytes`` the size of the rank's largest file.
        """
        return math.ceil(self.state_share * shard_bytes + self.file_share * file_bytes)


class EngineSpec(NamedTuple):
    """One engine.

    - ``make``: "module:function", imported only by the ranks. The function has the parameters ``shard``, ``content``,
      ``group``, ``activity`` and ``options``, and returns a `pytest_ckpt.ranks.engines.protocol.Engine`.
    - ``commits``: the component that commits a save: pytest-ckpt's store or the engine's library.
    - ``needs``: capabilities that the target must have.
    - ``is_collective``: ranks save and load only together.
    - ``package``: the libraries that must be installed, separated by commas.
    - ``extra``: the extra of pytest-ckpt that installs the libraries.
    - ``stages``: the engine can save a copy of the state (`pytest_ckpt.ranks.engines.protocol.StagingEngine`).
      Background saves require such a copy.
    - ``has_process``: the engine's library has a separate process that saves the copy of the state.
    - ``files``: the names of a checkpoint's files. The plan counts the files with these names, and the clean-up removes
      only these files.
    - ``owner``: the plugin that supplies the engine, with the plugin's version; empty for a built-in engine.
    - ``resizes``: "module:function" of a loader for a checkpoint that another number of ranks saved; empty if the
      engine has no such loader.
    - ``replays``: the engine repeats the calls of a recorded job. The user names the recording.
    - ``system_certificates``: the library verifies TLS only with the system's certificates.
    """

    name: str
    help: str
    make: str
    memory: MemoryRule
    commits: Commits = "store"
    needs: frozenset[str] = frozenset()
    is_collective: bool = False
    package: str = ""
    extra: str = ""
    stages: bool = False
    has_process: bool = False
    files: FileRule = OF_LAYOUT
    owner: str = ""
    resizes: str = ""
    replays: bool = False
    system_certificates: bool = False

    @property
    def packages(self) -> tuple[str, ...]:
        """The libraries that must be installed."""
        return tuple(filter(None, self.package.split(",")))

    def to_plain(self) -> dict[str, Any]:
        """Return {name: value} for the fields that the plan and the report contain, as plain types.

        With these fields, a run can be judged on a machine where the engine is not installed.
        """
        return {
            "name": self.name,
            "owner": self.owner,
            "commits": self.commits,
            "is_collective": self.is_collective,
            "stages": self.stages,
            "process_bytes": self.memory.process_bytes,
            "state_share": self.memory.state_share,
            **({"file_share": self.memory.file_share} if self.memory.file_share else {}),
            **({"files": self.files.to_plain()} if self.files.of_rank else {}),
        }


BUILT_IN = (
    EngineSpec(
        name="stream",
        help="the file format of torch.save without PyTorch: direct I/O, and little memory for any model",
        make="pytest_ckpt.ranks.engines.stream.engine:make",
        memory=MemoryRule(process_bytes=100_000_000),
        stages=True,
    ),
    EngineSpec(
        name="torch",
        help="torch.save and torch.load, the state in memory",
        make="pytest_ckpt.ranks.engines.torch:make",
        # Python, torch and MPI, as measured in docs/performance.md.
        memory=MemoryRule(process_bytes=400_000_000, state_share=1.0),
        package="torch",
        extra="torch",
        stages=True,
    ),
    EngineSpec(
        name="dcp",
        help="torch.distributed.checkpoint with its own files, all ranks together, the state in memory",
        make="pytest_ckpt.ranks.engines.dcp:make",
        # A load needs memory for the state and one more tensor, at most 4 of a rank's 14 bytes per parameter.
        memory=MemoryRule(process_bytes=450_000_000, state_share=1.3),
        needs=frozenset({"paths"}),
        is_collective=True,
        package="torch",
        extra="torch",
        stages=True,
        has_process=True,
        files=DCP_FILES,
        resizes="pytest_ckpt.ranks.engines.dcp_resized:make",
    ),
    EngineSpec(
        name="dcp-s3torchconnector",
        help="torch.distributed.checkpoint into a bucket by Amazon's s3torchconnector, committed by this library",
        make="pytest_ckpt.ranks.engines.dcp_s3torchconnector:make",
        # Measured in docs/performance.md: a load keeps the data that the client has read ahead, up to half a GB.
        memory=MemoryRule(process_bytes=1_200_000_000, state_share=1.7),
        commits="engine",
        needs=frozenset({"parts of S3"}),
        is_collective=True,
        package="torch,s3torchconnector,tenacity",
        extra="s3torchconnector",
        stages=True,
        files=DCP_OBJECTS,
        system_certificates=True,
    ),
    EngineSpec(
        name="dcp-s3fs",
        help="torch.distributed.checkpoint into a bucket by fsspec and s3fs, committed by these libraries",
        make="pytest_ckpt.ranks.engines.dcp_fsspec:make",
        memory=MemoryRule(process_bytes=600_000_000, state_share=2.0),
        commits="engine",
        needs=frozenset({"parts of S3"}),
        is_collective=True,
        package="torch,fsspec,s3fs",
        extra="s3fs",
        stages=True,
        files=DCP_OBJECTS,
    ),
    EngineSpec(
        name="safetensors",
        help="Hugging Face's files of at most 5 GB with an index, by its library, the state in memory",
        make="pytest_ckpt.ranks.engines.safetensors:make",
        # A save needs memory for the state and for two copies of a file; for three copies with a library before 0.8.
        memory=MemoryRule(process_bytes=120_000_000, state_share=1.0, file_share=3.0),
        package="safetensors",
        extra="safetensors",
        stages=True,
        files=SAFETENSORS_FILES,
    ),
    EngineSpec(
        name="safetensors-consolidated",
        help="Hugging Face's files by torch's writer, all ranks together, and rank 0 makes files of whole tensors",
        make="pytest_ckpt.ranks.engines.consolidated:make",
        memory=MemoryRule(process_bytes=450_000_000, state_share=1.0, file_share=3.0),
        needs=frozenset({"paths"}),
        is_collective=True,
        package="torch,safetensors",
        extra="torch,safetensors",
        stages=True,
        files=CONSOLIDATED_FILES,
    ),
    EngineSpec(
        name="megatron",
        help="the files and calls of Megatron's distributed checkpoints, all ranks together, the state in memory",
        make="pytest_ckpt.ranks.engines.megatron:make",
        # As much as engine dcp, because the same library writes the large files.
        memory=MemoryRule(process_bytes=450_000_000, state_share=1.3),
        needs=frozenset({"paths"}),
        is_collective=True,
        package="torch",
        extra="torch",
        stages=True,
        files=MEGATRON_FILES,
    ),
    EngineSpec(
        name="replay",
        help="the calls of a recorded job, --ckpt-engine=replay:file, the state in memory",
        make="pytest_ckpt.ranks.engines.replay:make",
        memory=MemoryRule(process_bytes=120_000_000, state_share=1.0),
        needs=frozenset({"paths"}),
        is_collective=True,
        stages=True,
        files=FileRule(of_rank="replay-{rank}-{number}.bin"),
        replays=True,
    ),
)
"""The built-in engines; the first is the default."""

DEFAULT, TORCH = BUILT_IN[:2]

STREAM = "stream"
"""The name of the engine that splits files into requests and keeps several requests in flight on each rank."""


def built_in(name: str) -> EngineSpec | None:
    """Return the built-in engine ``name``; None if there is no such engine."""
    return next((engine for engine in BUILT_IN if engine.name == name), None)
