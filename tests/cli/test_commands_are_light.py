"""Commands that evaluate files work without torch, MPI and pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ckpt.evidence.history import append_run
from tests.support import synthetic_run

BLOCKED = ("torch", "mpi4py", "pytest", "_pytest", "xdist", "pytest_benchmark", "numpy", "psutil")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("run") / "run"
    synthetic_run.write_run(directory)
    return directory


@pytest.fixture(scope="module")
def run_directory(run, tmp_path_factory):
    history = tmp_path_factory.mktemp("history") / "kept"
    append_run(history, json.loads((run / "report.json").read_text()), run)
    return history


@pytest.mark.parametrize(
    "words",
    [["judge", "RUN"], ["judge", "RUN", "--html=PAGE"], ["verify", "RUN"],
     ["diff", "RUN", "RUN", "--html=PAGE"], ["trend", "KEPT", "--html=PAGE"],
     ["judge", "DLIO", "--cluster=16000", "--html=PAGE"], ["plan", "--cluster=64"]],
    ids=" ".join,
)  # fmt: skip
def test_the_commands_need_neither_torch_nor_mpi_nor_pytest(run, run_directory, tmp_path, words):
    """The commands work in an environment where importing torch, MPI or pytest raises an error."""
    blocked = tmp_path / "blocked"
    for name in BLOCKED:
        (blocked / name).mkdir(parents=True)
        (blocked / name / "__init__.py").write_text(f"raise ImportError('{name} must not be needed')\n")
    (tmp_path / "dlio").mkdir()
    stats = {"start": "2026-03-01T12:00:00.000000"}
    for number in range(1, 4):
        start, end = f"2026-03-01T12:00:{10 * number:02}.000000", f"2026-03-01T12:00:{10 * number + 5:02}.000000"
        stats[f"save_ckpt{number}"] = {"start": start, "end": end, "duration": 5.0, "throughput": 104.704521 / 5}
    (tmp_path / "dlio" / "0_per_epoch_stats.json").write_text(json.dumps({"1": stats}))
    names = {"RUN": run, "KEPT": run_directory, "DLIO": tmp_path / "dlio", "PAGE": tmp_path / "page.html"}
    for name, path in names.items():
        words = [word.replace(name, str(path)) for word in words]
    checkout = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(blocked), str(checkout)])}
    assert subprocess.run([sys.executable, "-c", "import torch"], env=environment, check=False,
                          capture_output=True).returncode == 1  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "pytest_ckpt.cli.main", *words], env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode in (0, 1, 8), done.stderr
    assert done.stdout
    assert not done.stderr


@pytest.mark.parametrize(
    ("words", "simulates"),
    [(["judge", "RUN"], False), (["plan", "--cluster=64"], False), (["size", "--cluster=16000"], False),
     (["judge", "RUN", "--json"], True), (["verify", "RUN"], True)],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_numpy_is_loaded_where_a_forecast_is_simulated_and_nowhere_else(run, words, simulates):
    """Of the tested commands, only ``judge --json`` and ``verify`` simulate a forecast and import numpy."""
    script = (
        "import sys; from pytest_ckpt.cli.main import main; main(sys.argv[1:]); "
        "print('numpy' in sys.modules, file=sys.stderr)"
    )
    words = [word.replace("RUN", str(run)) for word in words]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    assert done.stderr.split() == [str(simulates)]
