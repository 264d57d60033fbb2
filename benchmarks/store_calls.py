"""Compares the calls of ranks on target files: ``python benchmarks/store_calls.py BEFORE NOW --directory DIRECTORY``.

BEFORE and NOW are two checkouts of pytest-ckpt; append ``:PYTHON`` to run a checkout with another Python. Both
checkouts run under strace with the same small workload, in DIRECTORY. Numbers of runs and processes are removed from
file names.

Only calls below the directory of the workload are compared:

- The calls of each thread must be equal: their order, lengths, offsets and results.
- Calls such as pwrite and preadv are distributed at random over threads. The calls on each file must be equal over all
  threads, and the offsets must increase in each thread.
- Calls without an effect, such as stat, are not compared.

The exit code is 1 if anything differs. The traces remain in the directory ``--keep``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

SUBJECT = "llama3-8b-open-2"
RUN = (
    "--cluster=64", "--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-ranks=2", "--ckpt-profile=smoke",
    "--ckpt-gate-table=speed-only", "--ckpt-operations=2", "--ckpt-scale=1/1000", "-p", "no:cacheprovider", "-q",
)  # fmt: skip
CALLS = (
    "openat", "open", "read", "write", "pread64", "pwrite64", "preadv", "preadv2", "pwritev", "lseek", "fallocate",
    "ftruncate", "fsync", "fdatasync", "sync_file_range", "fadvise64", "close", "rename", "renameat", "renameat2",
    "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "link", "linkat",
)  # fmt: skip
_SHARED = ("pwrite64", "preadv", "preadv2", "pwritev", "pread64")
_LINE = re.compile(r"(\w+)\((.*)\)\s+= (\S+)(?: <| \(| [A-Z]|<|$)")


def trace(checkout: str, engine: str, directory: Path, keep: Path) -> None:
    """Run the workload of a checkout under strace, which writes one file per thread into ``keep``."""
    place, _, python = checkout.partition(":")
    home = Path(tempfile.mkdtemp(prefix="store-calls-"))
    target = Path(tempfile.mkdtemp(prefix="target-", dir=directory))
    keep.mkdir(parents=True)
    command = [
        "strace", "-ff", "-qq", "-y", "-s", "0", "--seccomp-bpf", "-e", f"trace={','.join(CALLS)}",
        "-o", str(keep / "thread"), python or sys.executable, "-m", "pytest", f"--ckpt-target={target}",
        f"--ckpt-engine={engine}", *RUN,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(Path(place).resolve())}
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    # On tmpfs no load is cold, so the run fails.
    if done.returncode not in (0, 1) or " load 2 of 2" not in done.stdout:
        raise SystemExit(f"{checkout}: exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-1000:]}")
    shutil.rmtree(home)
    shutil.rmtree(target)


def read(keep: Path) -> tuple[Counter[tuple[str, ...]], dict[str, Counter[str]]]:
    """Return two tables of the traced calls in ``keep``.

    The first table is {sequence of calls: number of threads that made it}. The second table is {file: {call: count}} of
    the calls pwrite and preadv.
    """
    threads: Counter[tuple[str, ...]] = Counter()
    shared: dict[str, Counter[str]] = defaultdict(Counter)
    for file in sorted(keep.glob("thread.*")):
        own: list[str] = []
        reached: dict[str, int] = {}
        for line in file.read_text(errors="replace").splitlines():
            call = normalised(line)
            if call is None:
                continue
            name, path, text = call
            if name not in _SHARED:
                own.append(text)
                reached.pop(path, None)
                continue
            shared[path][text] += 1
            offset = int(text.rsplit(" at ", 1)[1].split(" ", 1)[0])
            if offset < reached.get(path, -1):
                raise SystemExit(f"{file}: a thread goes back: {line}")
            reached[path] = offset
        # The calls of the controller, which looks for remaining files, are not compared.
        if any("/checkpoint-" in text for text in own):
            threads[tuple(own)] += 1
    return threads, shared


def normalised(line: str) -> tuple[str, str, str] | None:
    """Return (name, file, comparable text) of the call in a line of strace.

    The text omits values that differ between runs. The result is None if the file is not below the workload's
    directory.
    """
    found = _LINE.match(line)
    if not found:
        return None
    name, arguments, result = found.groups()
    paths = re.findall(rf"/pytest-ckpt-[^/>\"]*/{SUBJECT}[^/>\"]*([^>\"]*)", arguments)
    if not paths:
        return None
    path = " ".join(re.sub(r"canary-\d+", "canary", p) or "." for p in paths)
    if name in _SHARED:
        # The last argument of preadv2 contains flags.
        offset = arguments.rsplit(", ")[-2 if name.endswith("v2") else -1]
        length = re.search(r"iov_len=(\d+)", arguments) or re.search(r", (\d+), \d+$", arguments)
        return name, path, f"{name} {length[1] if length else '?'} at {offset} = {result}"
    rest = re.sub(rf"(AT_FDCWD<[^>]*>, |\d+<[^>]*>|\"[^\"]*\"\.*|[^ ,]*{SUBJECT}[^ ,]*)", "", arguments)
    if name.startswith("open"):
        result = re.sub(r"^\d+.*", "FD", result)
    elif name == "mkdir":
        result = "made by one of the ranks"
    return name, path, f"{name} {path} {rest.strip(' ,')} = {result}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("now")
    parser.add_argument("--directory", required=True, type=Path, action="append", help="several times for several")
    parser.add_argument("--engine", default="torch,stream")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "store-calls")
    asked = parser.parse_args()
    shutil.rmtree(asked.keep, ignore_errors=True)
    differs = False
    for directory in asked.directory:
        for engine in asked.engine.split(","):
            seen = []
            for which, checkout in (("before", asked.before), ("now", asked.now)):
                keep = asked.keep / f"{str(directory).strip('/').replace('/', '-')}-{engine}-{which}"
                trace(checkout, engine, directory, keep)
                seen.append(read(keep))
            (threads, shared), (threads_now, shared_now) = seen
            equal = threads == threads_now and shared == shared_now
            calls = sum(len(own) * count for own, count in threads.items())
            requests = sum(sum(of.values()) for of in shared.values())
            print(f"{directory} {engine}: {calls} calls of {sum(threads.values())} threads in order, {requests} shared "
                  f"requests: {'equal' if equal else 'DIFFERENT'}", flush=True)  # fmt: skip
            if not equal:
                differs = True
                show(threads, threads_now)
                for path in sorted(p for p in set(shared) | set(shared_now) if shared[p] != shared_now[p])[:10]:
                    print(f"  {path}: only before {dict(shared[path] - shared_now[path])}, "
                          f"only now {dict(shared_now[path] - shared[path])}"[:1000])  # fmt: skip
    sys.exit(differs)


def show(before: Counter[tuple[str, ...]], now: Counter[tuple[str, ...]]) -> None:
    """Print the first differing calls of threads whose sequence of calls occurs in only one of the two traces."""
    only_before, only_now = sorted((before - now).elements()), sorted((now - before).elements())
    print(f"  threads that are not on the other side: {len(only_before)} before, {len(only_now)} now")
    for one, other in zip(only_before, only_now, strict=False):
        at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        print(f"  after {at} equal calls:\n    before: {one[at : at + 3]}\n    now:    {other[at : at + 3]}")


if __name__ == "__main__":
    main()
