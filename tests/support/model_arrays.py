"""Model arrays: simulated storage with known properties and expected outcomes. The results of runs are recorded."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.support import CHECKOUT

FILE = CHECKOUT / "docs" / "model_arrays.json"
UPDATE = "CKPT_UPDATE_MODEL_ARRAYS"
"""The environment variable that makes the tests record their results in FILE."""
REPEATS = "CKPT_ARRAY_REPEATS"
"""The environment variable with the number of runs on each array; 1 by default."""

# The small model's checkpoint has 51.5 MB, and this cluster's limit of a save is 1.48 s: 34.7 MB/s are needed.
CLUSTER = 300_000
NEEDED_BYTES_PER_SECOND = 34.7e6
# Far from the limit, because other work on the machine may double the time.
_GOOD = 2.5 * NEEDED_BYTES_PER_SECOND
_CAP = 0.6 * NEEDED_BYTES_PER_SECOND
_MET = {"SAVE": "met", "LOAD": "met", "INTEGRITY": "met", "COLD": "met", "DURABLE-CALLS": "met"}
_SLOW_SAVES = _MET | {"SAVE": "failed"}
_FAIR = _MET | {"NEIGHBOUR": "met"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Array:
    """One model array: its property, the fault that simulates it, and the expected outcomes of the requirements."""

    name: str
    truth: str
    is_good: bool
    fault: str
    parameters: dict[str, Any] = field(default_factory=dict)
    ranks: int = 2
    expected: dict[str, str] = field(default_factory=lambda: _MET)
    # Words that the certificate must contain.
    expected_text: str = ""
    cuts_power: bool = False
    # The target is ext4 on a loop device over an image in tmpfs, not FUSE.
    is_memory: bool = False


ARRAYS = (
    Array(
        name="rate 10 % below the need",
        truth="0.9 times the needed rate in total for saves",
        is_good=False,
        fault="slow",
        parameters={"bytes_per_second": 0.9 * NEEDED_BYTES_PER_SECOND, "reads_are_slow": False},
        expected=_SLOW_SAVES,
    ),
    Array(
        name="rate well above the need",
        truth="2.5 times the needed rate in total",
        is_good=True,
        fault="slow",
        parameters={"bytes_per_second": _GOOD},
        expected=_FAIR,
    ),
    Array(
        name="rate well above the need, twice the ranks",
        truth="2.5 times the needed rate in total; four ranks",
        is_good=True,
        fault="slow",
        parameters={"bytes_per_second": _GOOD},
        ranks=4,
        expected=_FAIR,
    ),
    Array(
        name="one job starves another",
        truth="5 times the needed rate in total; while rank 0 writes a checkpoint, writes to another one take 1 s each",
        is_good=False,
        fault="starves a job",
        parameters={"bytes_per_second": 5 * NEEDED_BYTES_PER_SECOND},
        expected=_MET | {"NEIGHBOUR": "failed"},
    ),
    Array(
        name="cap per client, enough clients",
        truth="0.6 times the needed rate for each client; four clients; a rank is a client",
        is_good=True,
        fault="slow",
        parameters={"bytes_per_second": _CAP, "is_by_rank": True},
        ranks=4,
    ),
    Array(
        name="cap per client, too low",
        truth="0.4 times the needed rate for each client; two clients; a rank is a client",
        is_good=False,
        fault="slow",
        parameters={
            "bytes_per_second": 0.4 * NEEDED_BYTES_PER_SECOND,
            "is_by_rank": True,
            "reads_are_slow": False,
        },
        expected=_SLOW_SAVES,
    ),
    Array(
        name="metadata at 5 ms",
        truth="5 ms for each operation on a name; fast data",
        is_good=True,
        fault="slow metadata",
    ),
    Array(
        name="log-normal latency",
        truth="log-normal time of each write and read: median 3 ms, sigma 0.8",
        is_good=True,
        fault="slow file",
        parameters={"seconds": 0.003, "sigma": 0.8},
    ),
    Array(
        name="heavy tail",
        truth="one save in five exceeds the limit: the writes of checkpoints 4 and 9 take 0.5 s each",
        is_good=False,
        fault="slow file",
        parameters={"path": "*checkpoint-000[49]*", "seconds": 0.5, "writes_only": True},
        expected=_SLOW_SAVES,
    ),
    Array(
        name="write-back cache that fills",
        truth="300 MB are accepted immediately, later writes at half the needed rate",
        is_good=False,
        fault="slow",
        parameters={
            "burst_bytes": 300_000_000,
            "bytes_per_second": 0.5 * NEEDED_BYTES_PER_SECOND,
            "reads_are_slow": False,
        },
        expected=_SLOW_SAVES,
    ),
    Array(
        name="small burst, steady rate above the need",
        truth="30 MB are accepted immediately, later writes at 2.5 times the needed rate",
        is_good=True,
        fault="slow",
        parameters={"burst_bytes": 30_000_000, "bytes_per_second": _GOOD},
    ),
    Array(
        name="fsync without effect, no power cut",
        truth="fsync returns and makes no byte durable; the run cuts no power",
        is_good=False,
        fault="fsync of files is lost",
        expected_text="Durability was acknowledged, not proven.",
    ),
    Array(
        name="fsync without effect, power cut",
        truth="fsync returns and makes no byte durable; the run cuts the power",
        is_good=False,
        fault="fsync of files is lost",
        expected_text="acknowledged bytes lost in a power cut",
        cuts_power=True,
        expected={"DURABLE.power-cut": "failed"},
    ),
    Array(
        name="memory below",
        truth="ext4 on a loop device whose image is in the host's memory",
        is_good=False,
        fault="",
        is_memory=True,
        expected=_MET | {"COLD": "failed"},
    ),
)


def recorded() -> dict[str, Any]:
    """Return {name of the array: recorded result of a run}."""
    found: dict[str, Any] = json.loads(FILE.read_text() or "{}") if FILE.exists() else {}
    return found


def record(array: Array, seen: dict[str, str], exit_code: int, *, expected_text: str) -> None:
    """Store the result of a run on an array in `FILE`, if the environment variable that `UPDATE` names is set.

    ``seen`` is {requirement: outcome}. ``expected_text`` contains the words that the certificate must contain.
    """
    if not os.environ.get(UPDATE):
        return
    # Several processes may record concurrently.
    with FILE.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rows = recorded()
        rows[array.name] = {
            "date": datetime.now(UTC).date().isoformat(),
            "exit_code": exit_code,
            "seen": seen,
            "says": expected_text,
        }
        file.truncate(0)
        file.write(json.dumps(rows, indent=1, sort_keys=True) + "\n")
