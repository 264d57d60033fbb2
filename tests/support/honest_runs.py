"""Repeats all checks on targets without faults: ``python -m tests.support.honest_runs --times 20``.

A check that fails here is a false alarm. The program needs root. It prints one line for each kind of target. The exit
code is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import collections
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_ckpt.facts.checks import checks_for
from tests.support.machine import Mounts
from tests.support.matrix import ALL
from tests.support.target_checks import SHARE, Pair, observe
from tests.support.targets.misbehaving import misbehaving

KINDS = ("ext4", "xfs", "btrfs", "tmpfs", "fuse")
_MEBIBYTES = 1536


@contextmanager
def _create_target(kind: str, home: Path) -> Iterator[tuple[dict[str, list[str]], list[str]]]:
    """Create a target of the type ``kind``; yield ({need: arguments of checks}, names of the checks to run).

    A need is a precondition of checks, such as "second client". The arguments of the key "" apply to all checks.
    """
    number = iter(range(100))

    def make(name: str) -> Path:
        directory = home / f"{name}-{next(number)}"
        directory.mkdir()
        return directory

    mounts = Mounts(make)
    try:
        if kind == "fuse":
            store, small = mounts("tmpfs", _MEBIBYTES), mounts("tmpfs", 96)
            with (
                misbehaving(make("two"), second=True, backing=store / "files") as target,
                misbehaving(make("small"), backing=small / "files") as other,
            ):
                yield Pair(target, other).words(), sorted(ALL)
        else:
            place = mounts(kind, _MEBIBYTES)
            names = [check.name for check in checks_for("posix") if not check.needs]
            yield {"": [f"--directory={place}", f"--share={SHARE}", "--json"]}, names
    finally:
        mounts.unmount_all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--kinds", default=",".join(KINDS))
    asked = parser.parse_args()
    print(f"all checks {asked.times} times, {SHARE:.0%} of their trials")
    wrong = False
    for kind in asked.kinds.split(","):
        began, alarms = time.monotonic(), collections.Counter[str]()
        count = 0
        for _ in range(asked.times):
            home = Path(tempfile.mkdtemp(prefix="honest-", dir="/var/tmp"))
            try:
                with _create_target(kind, home) as (words, names):
                    found = observe(words, names)
            finally:
                shutil.rmtree(home, ignore_errors=True)
            count += len(found)
            for name, verdict in found.items():
                if verdict.outcome != "met":
                    alarms[name] += 1
                    print(f"  {kind}: {name} {verdict.outcome}: {verdict.because}", flush=True)
        wrong = wrong or bool(alarms)
        text = ", ".join(f"{name} x{times}" for name, times in alarms.items()) or "no false alarm"
        print(f"{kind:>6}: {count} checks in {time.monotonic() - began:.0f} s: {text}", flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
