"""ACME's plugin for the acceptance test: an example of each hook, explained in docs/writing_a_hook.md."""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.vendors import Decision, Measurement, Operations, Section, Settings, requirement

__version__ = "2.1"

HERE = Path(__file__).resolve().parent
TOOL = (sys.executable, str(HERE / "acme_tool.py"))


def pytest_ckpt_drop_caches(settings: Settings) -> str | None:
    """Return the array's own command: only this command empties the cache of the array's client."""
    return shlex.join([*TOOL, "drop-caches", str(Path(settings.target or "").expanduser().absolute())])


def pytest_ckpt_power_cut() -> str | None:
    """Return the command of the rack's power switch; None if no switch can be reached."""
    switch = os.environ.get("ACME_POWER_SWITCH")
    return shlex.join(["acme-power", "cycle", switch]) if switch else None


def pytest_ckpt_launch_command() -> str | None:
    """Pass a setting of the array's client library to the ranks."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    return shlex.join([str(mpiexec), "-x", "ACME_READ_AHEAD=off"]) if mpiexec.exists() else None


def pytest_ckpt_environment_facts() -> Mapping[str, str]:
    """Return the firmware and the health of the array, for the certificate."""
    return {"firmware": _tool("firmware"), "health before the run": _tool("health")}


def pytest_ckpt_before_measure(subjects: Sequence[str]) -> None:
    """Refuse to measure an array that is rebuilding: the buyer gets a healthy one."""
    if (health := _tool("health")) != "healthy":
        raise RuntimeError(f"the array is {health}, so {', '.join(subjects)} would not be measured as it is delivered")


def pytest_ckpt_after_measure(config: pytest.Config, measurement: Measurement) -> None:
    """Append the measurement to ACME's own log."""
    entry = {"subject": str(measurement.subject), "load_seconds": [o.seconds for o in measurement.of_kind("load")]}
    with (config.invocation_params.dir / "acme.jsonl").open("a") as log:
        log.write(json.dumps(entry) + "\n")


@requirement("ACME-DROPPED", title="The array's own cache is emptied", source="ACME Client Guide, chapter 4")
def the_array_s_own_cache_is_emptied(measurement: Measurement) -> Decision:
    """Before the loads, caches were emptied by the array's own command.

    The kernel cannot drop the cache of ACME's client. A load from that cache would not measure the array.
    """
    method = measurement.cache.method if measurement.cache else ""
    if not method:
        return Decision(outcome="not run", because="No cache was emptied before the measurement ended.")
    if "acme_tool.py" in method:
        return Decision(outcome="met", because="acme_tool.py emptied the caches on every host.")
    return Decision(outcome="failed", because=f"Caches were emptied otherwise: {method}.")


@requirement(
    "ACME-WARMUP",
    title="The first load is no slower",
    severity="advisory",
    maximum=2.0,
    units=("x",),
    source="ACME's data sheet",
    next_step="Ask ACME which shelf was cold.",
)
def the_first_load_is_no_slower(loads: Operations, maximum: float) -> Decision:
    """The first load takes at most twice as long as those that follow.

    After a failure a job loads once, so its load is always a first load.
    """
    first, *others = [operation.seconds for operation in loads.all]
    if not others:
        return Decision(outcome="not run", because="Fewer than two loads were measured.")
    ratio = first / statistics.median(others)
    return Decision(
        outcome="met" if ratio <= maximum else "failed",
        measured=ratio,
        limit=maximum,
        because=f"The first load took {ratio:.2f} times as long as the median of the others.",
        detail=tuple(f"load {operation.index}: {operation.seconds:.3f} s" for operation in loads.all),
    )


def pytest_ckpt_requirements() -> Sequence[Callable[..., Decision]]:
    """Return one required and one advisory requirement."""
    return [the_array_s_own_cache_is_emptied, the_first_load_is_no_slower]


def pytest_ckpt_suites() -> Sequence[Path]:
    """If the command line names no tests, ACME's tests run in addition to those of pytest-ckpt."""
    return [HERE]


def pytest_ckpt_report_sections(document: dict[str, Any]) -> Sequence[Section]:
    """Explain in the certificate how to order the measured storage."""
    sizes = [(row["subject"], row["overall"]) for row in document["sufficient_up_to_accelerators"]]
    return [
        Section(
            title="Ordering this array",
            paragraphs=["One shelf served the load of this run; for a larger cluster, ask ACME for more shelves."],
            head=["checkpoint", "accelerators that one shelf serves"],
            rows=[[subject, "unknown" if size is None else f"{size:,}"] for subject, size in sizes],
        )
    ]


def _tool(*words: str) -> str:
    return subprocess.run([*TOOL, *words], capture_output=True, text=True, check=True).stdout.strip()
