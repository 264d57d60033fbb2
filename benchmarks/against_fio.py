"""The engine ``stream`` against fio: ``python benchmarks/against_fio.py FOLDER``.

The same files and bytes, processes, request size, requests in flight and fsync at the end, by both, in pairs that take
turns; the slowest process counts. The ranks of the engine are real ones: started by mpiexec, from the barrier of a
save or load until they are done, the content made and compared as in every run. Of fio counts what its jobs report,
fsync included; start-up and set-up of files do not. fio runs with the best of what it has for the folder: io_uring,
libaio or psync, with huge pages for its buffers or without, tried out before the first pair.

What fio does not have: content that is made while it is written, with checksums, and comparing what was read (outside
the clock). fio writes the same few buffers again and again, which so stay in the processor's cache; with ``--fresh`` it
makes new bytes for every write, as a checkpoint has them. Prints the ratio of throughput pair by pair; ``--raw FILE``
keeps every second as JSON.
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
import time
from pathlib import Path
from typing import Any

from pytest_ckpt.measure.mounts import mount_of

_WAYS = ("fio", "stream")
_KINDS = ("save", "load")
_MODES = {"save": "write", "load": "read"}


def as_rank(job_file: str) -> None:
    """Save and load once, as one of the ranks; rank 0 writes every rank's seconds."""
    from pytest_ckpt.ranks.activity import Activity  # noqa: PLC0415 - in the ranks only
    from pytest_ckpt.ranks.cache import HostCache  # noqa: PLC0415
    from pytest_ckpt.ranks.container import Container  # noqa: PLC0415
    from pytest_ckpt.ranks.content import Content  # noqa: PLC0415
    from pytest_ckpt.ranks.engines.stream import StreamEngine  # noqa: PLC0415
    from pytest_ckpt.ranks.group import Group  # noqa: PLC0415
    from pytest_ckpt.ranks.job import EngineOptions, checkpoint_name  # noqa: PLC0415
    from pytest_ckpt.ranks.operations import Operations  # noqa: PLC0415
    from pytest_ckpt.records import from_plain, to_plain  # noqa: PLC0415

    job = json.loads(Path(job_file).read_text())
    activity = Activity()
    group = Group(activity)
    shard = shard_of(group.rank, job["files"], job["elements"])
    options = EngineOptions(
        request_bytes=job["request_bytes"],
        depth=job["depth"],
        containers=(from_plain(Container, job["container"]),),
    )
    folder = Path(job["folder"])
    engine = StreamEngine(shard, Content(1), activity, options)
    do = Operations(group, activity, "against-fio", shard, folder)
    cache = HostCache(group, activity, folder)
    number = job["checkpoint"]
    saved = do.save(engine, number)
    cache.drop("auto", [folder / checkpoint_name(number) / file.name for file in shard.files])
    loaded = do.load(engine, cache, number, number)
    facts = engine.facts()
    do.unlink(number)
    do.remove_folders([number], also_own=False)
    if group.rank == 0:
        assert not loaded.fault_count, loaded.faults
        said = {"save": to_plain(saved), "load": to_plain(loaded.operation), "facts": facts}
        Path(job["result"]).write_text(json.dumps(said))


def shard_of(rank: int, files: int, elements: int) -> Any:
    from pytest_ckpt.sizing.models import RankLayout, ShardFile, Tensor  # noqa: PLC0415

    tensor = Tensor(name="weights", dtype="float32", elements=elements)
    return RankLayout(
        rank=rank, files=tuple(ShardFile(name=f"rank_{rank}_file_{n}.pt", tensors=(tensor,)) for n in range(files))
    )


class Stream:
    """Runs the engine on ranks."""

    def __init__(self, asked: argparse.Namespace, folder: Path, scratch: Path) -> None:
        from pytest_ckpt.measure.launcher import find_launcher  # noqa: PLC0415
        from pytest_ckpt.ranks.engines.lay_out import lay_out  # noqa: PLC0415
        from pytest_ckpt.records import to_plain  # noqa: PLC0415

        self._launcher = find_launcher(None, ())
        self._processes = asked.processes
        self._scratch = scratch
        # The tensor is so much smaller than the file that both sides write the same number of bytes.
        around = 0
        for _ in range(2):
            elements = (asked.file_mib * 2**20 - around) // 4
            container = lay_out(shard_of(0, 1, elements).files[0].tensors, str(scratch))
            around = container.bytes - elements * 4
        self._job = {
            "folder": str(folder),
            "files": asked.files,
            "elements": elements,
            "request_bytes": asked.request_kib << 10,
            "depth": asked.depth,
            "container": to_plain(container),
            "result": str(scratch / "result.json"),
        }
        self.facts: dict[str, str] = {}

    def run(self, number: int) -> dict[str, Any]:
        """Return the seconds of the slowest rank, by kind, and everything that was measured under ``all``."""
        job_file = self._scratch / "job.json"
        job_file.write_text(json.dumps({**self._job, "checkpoint": number}))
        command = self._launcher.command(self._processes)
        command = [*command[: command.index("-m")], str(Path(__file__).resolve()), "--as-rank", str(job_file), "-"]
        environment = self._launcher.environment(f"against-fio-{os.getpid()}", str(self._scratch))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"the ranks failed:\n{done.stdout}\n{done.stderr}"[-4000:])
        said = json.loads(Path(self._job["result"]).read_text())
        self.facts = said.pop("facts")
        # A save's own seconds: making the folder, writing, fsync of files and folder; the commit is beyond them.
        return {"save": max(said["save"]["rank_seconds"]), "load": said["load"]["seconds"], "all": said}


class Fio:
    """Runs fio."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        if not shutil.which("fio"):
            sys.exit("there is no fio on PATH; on Debian and Ubuntu it comes with: apt install fio")
        self._folder = folder
        self._asked = asked
        self.version = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()
        self._direct = takes_direct(folder)
        # On a disk, space that is taken beforehand keeps requests side by side. Where files are memory, taking it is
        # the work that is measured.
        self._fallocate = "none" if mount_of(folder).file_system in ("tmpfs", "ramfs") else "native"
        self.way: dict[str, tuple[str, str]] = {}

    def candidates(self) -> list[tuple[str, str]]:
        """Return (engine, memory) that may be the best."""
        engines = ["psync"] if self._asked.depth == 1 else ["io_uring", "libaio", "psync"]
        needed = self._asked.processes * (-(-self._asked.depth * self._asked.request_kib // 2048) + 1)
        memories = ["malloc with transparent huge pages", "mmap"]
        if free_huge_pages() >= needed:
            memories.append("mmaphuge")
        return [(e, m) for e in engines for m in memories]

    def choose(self) -> list[dict[str, Any]]:
        """Try all ways twice and keep the fastest for each kind."""
        tried = []
        for round_number in range(2):
            for way in self.candidates():
                self.way = dict.fromkeys(_KINDS, way)
                try:
                    found = self.run(0)
                except FioFailedError as error:
                    print(f"fio cannot do {' '.join(way)} here: {error}", file=sys.stderr)
                    continue
                tried.append({"way": way, "round": round_number, "save": found["save"], "load": found["load"]})
        if not tried:
            sys.exit("fio can do nothing here")
        best = {kind: min(tried, key=lambda t: t[kind])["way"] for kind in _KINDS}
        self.way = best
        return tried

    def run(self, _number: int) -> dict[str, Any]:
        """Return the seconds of the slowest job, by kind, and of every job under ``all``."""
        seconds = {}
        try:
            for kind in _KINDS:
                if kind == "load":
                    drop_caches(self._folder)
                seconds[kind] = self._jobs(kind)
        finally:
            for file in self._folder.glob("fio-*"):
                file.unlink()
        return {kind: max(seconds[kind]) for kind in _KINDS} | {"all": seconds}

    def _jobs(self, kind: str) -> list[float]:
        engine, memory = self.way[kind]
        asked = self._asked
        words = {
            "name": "pair",
            "directory": str(self._folder),
            "filename_format": "fio-$jobnum-$filenum",
            "numjobs": asked.processes,
            "nrfiles": asked.files,
            "filesize": f"{asked.file_mib}m",
            "file_service_type": "sequential",
            "bs": f"{asked.request_kib}k",
            "rw": _MODES[kind],
            "ioengine": engine,
            "iodepth": asked.depth,
            "direct": int(self._direct),
            "mem": memory.split()[0],
            "fallocate": self._fallocate,
            "end_fsync": 1,
            "refill_buffers": int(asked.fresh),
            "output-format": "json",
        }
        environment = dict(os.environ)
        if memory.startswith("malloc"):
            environment["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        done = subprocess.run(
            ["fio", *(f"--{name}={value}" for name, value in words.items())],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise FioFailedError((done.stderr or done.stdout).strip().splitlines()[-1])
        jobs = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
        moved = sum(job[_MODES[kind]]["io_bytes"] for job in jobs)
        wanted = asked.processes * asked.files * asked.file_mib << 20
        assert len(jobs) == asked.processes, f"{len(jobs)} jobs"
        assert moved == wanted, f"{moved} bytes of {wanted}"
        return [job[_MODES[kind]]["runtime"] / 1000 for job in jobs]


class FioFailedError(Exception):
    """fio cannot run that way here."""


def takes_direct(folder: Path) -> bool:
    probe = folder / "direct-probe"
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


def drop_caches(folder: Path) -> None:
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        for file in folder.glob("fio-*"):
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="on the storage that both are measured on")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--files", type=int, default=2, help="files of each process")
    parser.add_argument("--file-mib", type=int, default=512, help="MiB of each file")
    parser.add_argument("--request-kib", type=int, default=4096, help="KiB of each request")
    parser.add_argument("--depth", type=int, default=2, help="requests in flight of each process")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--fresh", action="store_true", help="let fio make new bytes for every write, too")
    parser.add_argument("--raw", metavar="FILE")
    parser.add_argument("--as-rank", metavar="FILE", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_rank:
        as_rank(asked.as_rank)
        return
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder, tempfile.TemporaryDirectory() as scratch:
        compare(asked, Path(folder), Path(scratch))


def compare(asked: argparse.Namespace, folder: Path, scratch: Path) -> None:
    fio, stream = Fio(asked, folder), Stream(asked, folder, scratch)
    tried = fio.choose()
    runs: dict[str, Any] = {"fio": fio.run, "stream": stream.run}
    rows = []
    # Pair 0 is a warm-up.
    for pair in range(asked.pairs + 1):
        # Who goes first takes turns, so that a drift of the machine favours neither.
        for way in sorted(_WAYS, reverse=bool(pair % 2)):
            rows.append({"pair": pair, "way": way, "load_average": os.getloadavg()[0], **runs[way](pair + 1)})
            time.sleep(0.5)
    size = asked.processes * asked.files * asked.file_mib << 20
    files = f"{asked.files} files of {asked.file_mib} MiB each"
    requests = f"requests of {asked.request_kib} KiB, {asked.depth} in flight"
    print(f"{asked.processes} processes, {files}, {requests}, {mount_of(folder).file_system}, {asked.pairs} pairs")
    for kind in _KINDS:
        print(f"{fio.version} {kind}: {', '.join(fio.way[kind])}")
    if asked.fresh:
        print("fio makes new bytes for every write (--fresh)")
    print(f"stream: {stream.facts['direct']}; {stream.facts['buffers']}")
    by = {(r["pair"], r["way"]): r for r in rows}
    for kind in _KINDS:
        print(f"\n{kind}  pair  fio GB/s  stream GB/s  stream / fio")
        ratios = []
        for pair in range(1, asked.pairs + 1):
            rates = {way: size / by[pair, way][kind] / 1e9 for way in _WAYS}
            ratios.append(rates["stream"] / rates["fio"])
            print(f"      {pair:4}  {rates['fio']:8.2f}  {rates['stream']:11.2f}  {ratios[-1]:12.3f}")
        fio_rate, stream_rate = (median_rate(by, way, kind, size, asked.pairs) for way in _WAYS)
        print(f"    median  {fio_rate:8.2f}  {stream_rate:11.2f}  {statistics.median(ratios):12.3f}")
    if asked.raw:
        about = {"asked": vars(asked), "fio": fio.version, "ways": fio.way, "stream": stream.facts, "tried": tried}
        Path(asked.raw).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


def median_rate(by: Any, way: str, kind: str, size: int, pairs: int) -> float:
    return statistics.median(size / by[pair, way][kind] / 1e9 for pair in range(1, pairs + 1))


if __name__ == "__main__":
    main()
