"""Rate of wrong verdicts: ``python benchmarks/acceptance_study.py [--arrays N] [--raw FILE] [--pictures DIR]``.

The arrays (storage systems) are simulated, so their true properties are known. No storage is used. Each array yields
the operation times of a planned run. The requirements of pytest-ckpt evaluate these times. The margin is the distance
between an array's usual time and the limit. The study counts the arrays that pass, for each requirement with a time
limit, each kind of array and each margin. The buyer's risk is the share of bad arrays that pass. The vendor's risk is
the share of good arrays that fail. The same seed gives the same counts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pytest_ckpt.support.units import counted
from tests.support.acceptance_charts import curves_picture, file_of, passed_share
from tests.support.missed_faults import SHARES, TRIALS, miss_probability
from tests.support.simulated_arrays import GOOD_LATE_SHARE, Drawn, Truth
from tests.support.simulated_runs import OPTIONS, Row, Timed, planned_by, rows

ARRAYS, SEED = 1000, 1
PROCESSES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The results of all simulated arrays with one margin.

    ``is_good`` states whether these arrays should pass. ``late_share`` is the true share of operations that exceed the
    limit. ``late_share`` is None if another property decides whether the arrays are good.
    """

    margin: float
    late_share: float | None
    is_good: bool
    passed: int
    failed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """The results for one requirement (``row``) and one kind of array (``truth``), with one `Point` for each margin.

    ``operations`` is the number of operations that decide the verdict. ``is_independent`` is true if the times of these
    operations are independent.
    """

    row: str
    truth: str
    operations: int
    is_independent: bool
    points: tuple[Point, ...]


def curve(row: Row, truth: Truth, arrays: int, seed: int) -> Curve:
    """Simulate and evaluate ``arrays`` arrays at each margin of the kind ``truth``; return the counts."""
    return Curve(
        row=row.name,
        truth=truth.name,
        operations=row.trials,
        is_independent=truth.is_independent,
        points=tuple(point(row, truth, margin, arrays, seed) for margin in truth.margins),
    )


def point(row: Row, truth: Truth, margin: float, arrays: int, seed: int) -> Point:
    """Simulate and evaluate ``arrays`` arrays at one margin; return the counts."""
    # Each point has a separate generator, so it stays the same if other points are added.
    text = f"{seed} {row.name} {truth.name} {margin}"
    chance = np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]))
    drawn = truth.draw(chance, margin, arrays, row.operations)
    ranks = planned_by("sync").layout.processes
    passed = sum(
        set(row.outcomes(series).values()) == {"met"} for series in _series_of(row, margin, drawn, arrays, ranks)
    )
    return Point(
        margin=margin,
        late_share=truth.late_share(margin),
        is_good=truth.is_good(margin),
        passed=passed,
        failed=arrays - passed,
    )


def _series_of(row: Row, margin: float, drawn: Sequence[Drawn], arrays: int, ranks: int) -> Iterator[list[list[Timed]]]:
    """Yield the series of operations of each array; each operation contains the time of every rank in seconds.

    The slowest rank changes from operation to operation.
    """
    scaled = [
        ((limit * (1 - margin) * one.slowest).tolist(), (limit * (1 - margin) * one.others).tolist())
        for limit, one in zip(row.limits, drawn, strict=True)
    ]
    for array in range(arrays):
        yield [
            [
                Timed(seconds=slow, ranks=tuple(slow if r == i % ranks else other for r in range(ranks)))
                for i, (slow, other) in enumerate(zip(slowest[array], others[array], strict=True))
            ]
            for slowest, others in scaled
        ]


def _curve_of(names: tuple[str, str, int, int]) -> Curve:
    """Return the curve for (row name, truth name, number of arrays, seed).

    This function runs in a worker process. Its arguments are names, because rows contain functions and cannot be
    pickled.
    """
    row_name, truth_name, arrays, seed = names
    row = next(each for each in rows() if each.name == row_name)
    return curve(row, next(each for each in row.truths if each.name == truth_name), arrays, seed)


def study(arrays: int, seed: int, processes: int = PROCESSES, only: Sequence[str] = ()) -> list[Curve]:
    """Return the curves of all rows of the study, or only of the rows named in ``only``."""
    tasks = [
        (row.name, truth.name, arrays, seed) for row in rows() if not only or row.name in only for truth in row.truths
    ]
    if processes == 1:
        return [_curve_of(task) for task in tasks]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(_curve_of, tasks))


def processor_seconds() -> float:
    """Return the CPU seconds of this process and its child processes."""
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def machine() -> str:
    """Return the processor's model name and the Python version as a text."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, Python {platform.python_version()}"


def document_of(curves: Sequence[Curve], arrays: int, seed: int) -> dict[str, Any]:
    """Return the study as JSON data, in the format of the option ``--raw``."""
    return {
        "arrays": arrays,
        "seed": seed,
        "processor_seconds": round(processor_seconds()),
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "options": OPTIONS,
        "good_late_share": GOOD_LATE_SHARE,
        "curves": [asdict(each) for each in curves],
    }


def lines_of(document: dict[str, Any]) -> Iterator[str]:
    """Yield the study as text lines: one table for each row and kind of array."""
    yield (
        f"{document['arrays']} arrays a point, seed {document['seed']}. Good: at most {GOOD_LATE_SHARE:.0%} of "
        "operations in service exceed the limit."
    )
    for each in document["curves"]:
        yield f"\n{each['row']}, {each['truth']} ({counted(each['operations'], 'operation')})"
        yield "  margin     late  truth  passed  wrong"
        for point in each["points"]:
            late = "-" if point["late_share"] is None else f"{point['late_share']:.1%}"
            share = passed_share(point)
            wrong, risk = (1 - share, "vendor") if point["is_good"] else (share, "buyer")
            yield (
                f"  {point['margin']:+6.0%}  {late:>7}  {'good' if point['is_good'] else 'bad':<5}  "
                f"{share:6.1%}  {wrong:6.1%} {risk}'s risk"
            )
    yield "\nBehaviour: probability that a fault is missed which a share p of all trials has, (1 - p)^n"
    yield "  n of a run " + "".join(f"{share:>9.1%}" for share in SHARES)
    for trials in TRIALS:
        yield f"  {trials:>10} " + "".join(f"{miss_probability(share, trials):>9.1%}" for share in SHARES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arrays", type=int, default=ARRAYS, help="arrays for each point of a curve (%(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of all numbers (%(default)s)")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="processes (%(default)s)")
    parser.add_argument("--row", action="append", default=[], help="only this row; may be repeated")
    parser.add_argument("--raw", metavar="FILE", help="write the study as JSON")
    parser.add_argument("--pictures", metavar="DIR", help="write one SVG a row into this directory")
    asked = parser.parse_args()
    curves = study(asked.arrays, asked.seed, asked.processes, asked.row)
    document = document_of(curves, asked.arrays, asked.seed)
    print("\n".join(lines_of(document)))
    if asked.raw:
        Path(asked.raw).write_text(json.dumps(document, indent=1) + "\n")
    if asked.pictures:
        for row in dict.fromkeys(each["row"] for each in document["curves"]):
            (Path(asked.pictures) / file_of(row)).write_text(curves_picture(document, row))


if __name__ == "__main__":
    main()
