"""The engine ``stream`` compared with fio: ``python benchmarks/against_fio.py DIRECTORY``.

The engine and fio use the same number of files, processes and requests in flight, and the same request size. They move
the same number of bytes (the engine adds up to 4 KiB per file), and end with fsync. They run in pairs; the engine runs
first in every second pair. The time of the slowest process counts.

The engine runs on real ranks that mpiexec starts. Its time begins at the barrier before a save or load, and ends when
all ranks have finished. Content is generated and compared as in every run. The time of fio is the run time that its
jobs report. This run time includes fsync and excludes start-up and file set-up.

In loads, the engine and fio read the same files, because the read rate may depend on where, when and with which bytes a
file was written. The engine and fio create these files in turn. If fio has created the files, the engine's bytes are
written in place, so that the blocks do not move.

fio runs with the fastest of its methods: io_uring or libaio (with one request in flight also psync), with or without
huge pages for its buffers. The methods are tried before the first pair. If a busy machine leads to a poor choice, set
the method, for example with ``--fio "io_uring mmaphuge"``.

fio does less work than the engine. It does not generate content with checksums during a save, and it does not compare
loaded bytes. (The engine's comparison is not timed.) fio writes the same few buffers repeatedly, so they stay in the
processor's cache. With ``--fresh`` fio generates new bytes for every write, as in a checkpoint.

The output is the ratio of throughput of each pair. ``--raw FILE`` records every time as JSON. ``--sweep`` runs only the
engine, with several request sizes and depths.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from caches import drop_caches

from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.targets.posix.names import checkpoint_name
from pytest_ckpt.targets.posix.storage_stack import mount_of

_WAYS = ("fio", "stream")
_KINDS = ("save", "load")
_MODES = {"save": "write", "load": "read"}


def as_rank(job_file: str) -> None:
    """Act as one rank: save or load once, as ``job_file`` describes.

    Rank 0 writes the result file that the job names, with the times of all ranks.
    """
    from pytest_ckpt.facts.codec import to_plain  # noqa: PLC0415
    from pytest_ckpt.ranks.content import Content  # noqa: PLC0415
    from pytest_ckpt.ranks.engines.stream.engine import StreamEngine  # noqa: PLC0415
    from pytest_ckpt.ranks.operations import Operations  # noqa: PLC0415
    from pytest_ckpt.ranks.process.activity import Activity  # noqa: PLC0415 - in the ranks only
    from pytest_ckpt.ranks.process.host_cache import HostCache  # noqa: PLC0415
    from pytest_ckpt.ranks.process.job import EngineOptions  # noqa: PLC0415
    from pytest_ckpt.ranks.process.mpi_group import MpiGroup  # noqa: PLC0415
    from pytest_ckpt.ranks.strategies.sync import SyncStrategy  # noqa: PLC0415
    from pytest_ckpt.targets.posix.store import PosixStore  # noqa: PLC0415

    job = json.loads(Path(job_file).read_text())
    activity = Activity()
    group = MpiGroup(activity)
    shard = shard_of(group.rank, job["files"], job["elements"])
    options = EngineOptions(request_bytes=job["request_bytes"], depth=job["depth"])
    store = PosixStore(Path(job["directory"]).parent)
    engine = StreamEngine(shard, Content(1), activity, options)
    do = Operations(group, activity, subject(), shard, store)
    number = job["checkpoint"]
    if job["kind"] == "save":
        operation = do.save(SyncStrategy(engine=engine, store=store, group=group, activity=activity), number)
    else:
        loaded = do.load(engine, HostCache(group, activity, store, subject().slug), number, number)
        assert not loaded.fault_count, loaded.faults
        operation = loaded.operation
    if group.rank == 0:
        Path(job["result"]).write_text(json.dumps({"operation": to_plain(operation), "facts": engine.facts()}))


def subject() -> Subject:
    return Subject(model="against", mode="fio")


def shard_of(rank: int, files: int, elements: int) -> Any:
    from pytest_ckpt.sizing.models import RankLayout, ShardFile, Tensor  # noqa: PLC0415

    tensor = Tensor(name="weights", dtype="float32", elements=elements)
    return RankLayout(
        rank=rank, files=tuple(ShardFile(name=f"rank_{rank}_file_{n}.pt", tensors=(tensor,)) for n in range(files))
    )


class Stream:
    """Saves and loads with the engine. Each operation starts new ranks."""

    def __init__(self, asked: argparse.Namespace, directory: Path, scratch: Path) -> None:
        from pytest_ckpt.facts.codec import to_plain  # noqa: PLC0415
        from pytest_ckpt.launching.launcher import find_launcher  # noqa: PLC0415
        from pytest_ckpt.ranks.engines.stream.container_layout import container_of  # noqa: PLC0415

        self._launcher = find_launcher(None, ())
        self._processes = asked.processes
        self._directory = directory
        self._scratch = scratch
        # The container adds aligned bytes, so the tensor is shortened until the file exceeds fio's by less than 4 KiB.
        size = asked.file_mib << 20
        elements = size // 4
        while True:
            container = container_of(shard_of(0, 1, elements).files[0].tensors)
            if container.bytes < size + 4096:
                break
            elements -= (container.bytes - size) // 4096 * 1024
        self._job = {
            "directory": str(directory),
            "files": asked.files,
            "elements": elements,
            "request_bytes": asked.request_kib << 10,
            "depth": asked.depth,
            "container": to_plain(container),
            "result": str(scratch / "result.json"),
        }
        self.facts: dict[str, str] = {}

    def files(self, number: int) -> list[list[str]]:
        """Return the paths of the files of checkpoint ``number``, relative to the directory: one list for each rank."""
        shards = [shard_of(rank, self._job["files"], self._job["elements"]) for rank in range(self._processes)]
        return [[f"{checkpoint_name(number)}/{file.name}" for file in shard.files] for shard in shards]

    def run(self, kind: str, number: int, **other: int) -> tuple[float, Any]:
        """Save or load checkpoint ``number``; return (seconds of the slowest rank, the operation as plain data).

        ``other`` replaces options of the job, such as ``depth``. The time of a save excludes the commit.
        """
        job_file = self._scratch / "job.json"
        job_file.write_text(json.dumps({**self._job, **other, "kind": kind, "checkpoint": number}))
        command = self._launcher.command(self._processes)
        command = [*command[: command.index("-m")], str(Path(__file__).resolve()), "--as-rank", str(job_file), "-"]
        environment = self._launcher.environment(f"against-fio-{os.getpid()}", str(self._scratch))
        # Ranks start with -P, so the directory of this script is not in their path.
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent.resolve()), environment["PYTHONPATH"]])
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"the ranks failed:\n{done.stdout}\n{done.stderr}"[-4000:])
        document = json.loads(Path(self._job["result"]).read_text())
        self.facts = document["facts"]
        # The times of ranks in a save include the directory, the writes and the fsync calls, but not the commit.
        seconds = max(document["operation"]["rank_seconds"]) if kind == "save" else document["operation"]["seconds"]
        return seconds, document["operation"]


class Fio:
    """Writes and reads files of the same sizes with fio."""

    def __init__(self, asked: argparse.Namespace, directory: Path, stream: Stream) -> None:
        if not shutil.which("fio"):
            sys.exit("there is no fio on PATH; on Debian and Ubuntu it comes with: apt install fio")
        self._directory = directory
        self._asked = asked
        self._stream = stream
        self.version = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()
        self._direct = takes_direct(directory)
        # On a disk, reserving the space first lets concurrent requests run without waiting for each other. If files are
        # in memory, the reservation would do the work that is to be measured.
        self._fallocate = "none" if mount_of(directory).file_system in ("tmpfs", "ramfs") else "native"
        self.way: dict[str, tuple[str, str]] = {}

    def candidates(self) -> list[tuple[str, str]]:
        """Return the methods of fio to try: (I/O engine, memory of the buffers)."""
        if self._asked.fio:
            engine, memory = self._asked.fio.split(" ", 1)
            return [(engine, memory)]
        # psync has one request in flight, whatever depth is set.
        engines = ["io_uring", "libaio"] + ["psync"] * (self._asked.depth == 1)
        needed = self._asked.processes * (-(-self._asked.depth * self._asked.request_kib // 2048) + 1)
        memories = ["malloc with transparent huge pages", "mmap"]
        if free_huge_pages() >= needed:
            memories.append("mmaphuge")
        return [(e, m) for e in engines for m in memories]

    def choose(self, number: int) -> list[dict[str, Any]]:
        """Try all methods three times on checkpoint ``number``, and set the fastest method for saves and for loads.

        Return all attempts, each with its method and its seconds.
        """
        tried = []
        for _ in range(3):
            for way in self.candidates():
                self.way = dict.fromkeys(_KINDS, way)
                try:
                    seconds = {kind: self.run(kind, number)[0] for kind in _KINDS}
                except FioFailedError as error:
                    print(f"fio cannot do {' '.join(way)} here: {error}", file=sys.stderr)
                    continue
                tried.append({"way": way, **seconds})
        if not tried:
            sys.exit("fio can do nothing here")
        self.way = {kind: min(tried, key=lambda t: t[kind])["way"] for kind in _KINDS}
        return tried

    def run(self, kind: str, number: int, *, lays_out: bool = False) -> tuple[float, Any]:
        """Write or read the files of checkpoint ``number``; return (seconds of the slowest job, seconds of each job).

        Writes create new files, which are removed afterwards. If ``lays_out`` is true, the new files are not removed:
        they receive the bytes of the engine's files and replace the engine's files.
        """
        engine, memory = self.way[kind]
        asked = self._asked
        words = [
            f"--bs={asked.request_kib}k",
            f"--rw={_MODES[kind]}",
            f"--ioengine={engine}",
            f"--iodepth={asked.depth}",
            f"--mem={memory.split()[0]}",
            f"--direct={int(self._direct)}",
            f"--size={asked.files * asked.file_mib}m",
            f"--directory={self._directory}",
            "--file_service_type=sequential",
        ]
        if kind == "save":
            words += [f"--fallocate={self._fallocate}", "--end_fsync=1", f"--refill_buffers={int(asked.fresh)}"]
        else:
            words.append("--allow_file_create=0")
        files = self._stream.files(number)
        if kind == "save":
            files = [[f"fio-{Path(name).name}" for name in names] for names in files]
        command = ["fio", "--output-format=json"] + ["--readonly"] * (kind == "load")
        for job, names in enumerate(files):
            # fio joins directory and names only if the directory is the first argument.
            command += [f"--name=job{job}", *words, f"--filename={':'.join(names)}"]
        environment = dict(os.environ)
        if memory.startswith("malloc"):
            environment["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        finally:
            for file in self._directory.glob("fio-*"):
                if lays_out:
                    take_place_of(self._directory / checkpoint_name(number) / file.name.removeprefix("fio-"), file)
                else:
                    file.unlink()
        if done.returncode:
            raise FioFailedError((done.stderr or done.stdout).strip().splitlines()[-1])
        jobs = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
        moved = [job[_MODES[kind]]["io_bytes"] for job in jobs]
        assert moved == [asked.files * asked.file_mib << 20] * asked.processes, moved
        seconds = [job[_MODES[kind]]["runtime"] / 1000 for job in jobs]
        return max(seconds), seconds


def take_place_of(ours: Path, theirs: Path) -> None:
    """Copy the bytes of the engine's file ``ours`` into fio's file ``theirs``, and rename ``theirs`` to ``ours``."""
    with ours.open("rb") as source, theirs.open("r+b") as target:
        shutil.copyfileobj(source, target, 16 << 20)
        os.fsync(target.fileno())
    theirs.replace(ours)


class FioFailedError(Exception):
    """fio has failed, for example because the directory does not support a method.

    The message is fio's last output line.
    """


def takes_direct(directory: Path) -> bool:
    probe = directory / "direct-probe"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True


def free_huge_pages() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("HugePages_Free:")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="on the storage that both are measured on")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--files", type=int, default=2, help="files of each process")
    parser.add_argument("--file-mib", type=int, default=512, help="MiB of each file")
    parser.add_argument("--request-kib", type=int, default=4096, help="KiB of each request")
    parser.add_argument("--depth", type=int, default=2, help="requests in flight of each process")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--fresh", action="store_true", help="let fio make new bytes for every write, too")
    parser.add_argument("--fio", metavar="'ENGINE MEMORY'", help="how fio runs, instead of the best of what it has")
    parser.add_argument("--sweep", action="store_true", help="find the best request size and depth of the engine")
    parser.add_argument("--raw", metavar="FILE")
    parser.add_argument("--as-rank", metavar="FILE", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_rank:
        as_rank(asked.as_rank)
        return
    with tempfile.TemporaryDirectory(dir=asked.directory) as directory, tempfile.TemporaryDirectory() as scratch:
        of_subject = Path(directory) / subject().slug
        of_subject.mkdir()
        (sweep if asked.sweep else compare)(asked, of_subject, Path(scratch))


def compare(asked: argparse.Namespace, directory: Path, scratch: Path) -> None:
    stream = Stream(asked, directory, scratch)
    fio = Fio(asked, directory, stream)
    stream.run("save", 1)
    tried = fio.choose(1)
    shutil.rmtree(directory / checkpoint_name(1))
    rows = []
    # Pair 0 is a warm-up.
    for pair in range(asked.pairs + 1):
        # Both go first in turn, so that a drift of the machine favours neither.
        order = sorted(_WAYS, reverse=bool(pair % 2))
        # Four consecutive pairs combine both orders with both layouts.
        laid_out_by = _WAYS[pair // 2 % 2]
        for kind in _KINDS:
            if kind == "load" and laid_out_by == "fio":
                fio.run("save", pair + 2, lays_out=True)
            for way in order:
                drop_caches(directory.glob("*/*.pt"))
                seconds, every = (fio if way == "fio" else stream).run(kind, pair + 2)
                row = {"pair": pair, "way": way, "kind": kind, "seconds": seconds, "all": every}
                rows.append({**row, "laid_out_by": laid_out_by, "load_average": os.getloadavg()[0]})
        shutil.rmtree(directory / checkpoint_name(pair + 2))
    size = asked.processes * asked.files * asked.file_mib << 20
    files = f"{asked.files} files of {asked.file_mib} MiB each"
    requests = f"requests of {asked.request_kib} KiB, {asked.depth} in flight"
    print(f"{asked.processes} processes, {files}, {requests}, {mount_of(directory).file_system}, {asked.pairs} pairs")
    for kind in _KINDS:
        print(f"{fio.version} {kind}: {', '.join(fio.way[kind])}")
    if asked.fresh:
        print("fio makes new bytes for every write (--fresh)")
    print(f"stream: {stream.facts['direct']}; {stream.facts['buffers']}")
    rates = {(r["pair"], r["way"], r["kind"]): size / r["seconds"] / 1e9 for r in rows}
    laid_out_by = {r["pair"]: r["laid_out_by"] for r in rows}
    for kind in _KINDS:
        print(f"\n{kind}  pair  fio GB/s  stream GB/s  stream / fio" + "  files laid out by" * (kind == "load"))
        found = [tuple(rates[pair, way, kind] for way in _WAYS) for pair in range(1, asked.pairs + 1)]
        for pair, (theirs, ours) in enumerate(found, start=1):
            by = f"  {laid_out_by[pair]}" if kind == "load" else ""
            print(f"      {pair:4}  {theirs:8.2f}  {ours:11.2f}  {ours / theirs:12.3f}{by}")
        theirs, ours, ratio = (statistics.median(c) for c in zip(*((a, b, b / a) for a, b in found), strict=True))
        print(f"    median  {theirs:8.2f}  {ours:11.2f}  {ratio:12.3f}")
    if asked.raw:
        about = {"asked": vars(asked), "fio": fio.version, "ways": fio.way, "stream": stream.facts, "tried": tried}
        Path(asked.raw).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


def sweep(asked: argparse.Namespace, directory: Path, scratch: Path) -> None:
    stream = Stream(asked, directory, scratch)
    cases = [(mib, depth) for mib in (1, 2, 4, 8) for depth in (1, 2, 4)]
    rows = []
    for turn in range(asked.pairs + 1):
        first = turn * 5 % len(cases)
        for mib, depth in cases[first:] + cases[:first]:
            for kind in _KINDS:
                drop_caches(directory.glob("*/*.pt"))
                seconds, _ = stream.run(kind, 1, request_bytes=mib << 20, depth=depth)
                rows.append({"turn": turn, "mib": mib, "depth": depth, "kind": kind, "seconds": seconds})
            shutil.rmtree(directory / checkpoint_name(1))
    size = asked.processes * asked.files * asked.file_mib << 20
    print(f"stream alone, {asked.processes} processes, {asked.files} files of {asked.file_mib} MiB each, "
          f"{mount_of(directory).file_system}; median GB/s of {asked.pairs} turns (lowest to highest)")  # fmt: skip
    print("request  depth  save                 load")
    for mib, depth in cases:
        texts = []
        for kind in _KINDS:
            case = {"mib": mib, "depth": depth, "kind": kind}
            rates = [size / r["seconds"] / 1e9 for r in rows if r["turn"] and case.items() <= r.items()]
            texts.append(f"{statistics.median(rates):.2f} ({min(rates):.2f} to {max(rates):.2f})")
        print(f"{mib:3} MiB  {depth:5}  {texts[0]:19}  {texts[1]}")
    if asked.raw:
        Path(asked.raw).write_text(json.dumps({"asked": vars(asked), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
