"""The longest run that the options allow can be read, judged and verified. A longer run is refused.

The tests generate the many saves of such a run, because only the size of the files matters here.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.measurement import Endurance, Patterns
from pytest_ckpt.facts.proofs import Fault
from pytest_ckpt.launching.launch import BoundedLog, bytes_of_log
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.sizing.record import (
    FACTS_OF_ENDURANCE,
    MAXIMUM_ENDURANCE_SAVES,
    MAXIMUM_FAULTS,
    check_record,
    values_of,
)
from pytest_ckpt.support import strict_json
from pytest_ckpt.support.errors import UsageError
from tests.support import synthetic_run

MAXIMUM_OPERATIONS = 4_093
DAYS = 30


def settings_of(processes, operations, **more):
    return resolve(
        synthetic_run.OPTIONS_OF_A_SMALL_RUN
        | {"ckpt_ranks": str(processes), "ckpt_operations": str(operations), "ckpt_suite": "performance,endurance",
           "ckpt_duration": f"{DAYS}d"}
        | more,
        {},
    )  # fmt: skip


def is_refused(settings):
    try:
        check_record(plan_run(settings, synthetic_run.SYNTHETIC_TARGET), settings)
    except UsageError:
        return True
    return False


def maximum_processes():
    """Return the highest number of ranks for which a run with --ckpt-operations=MAXIMUM_OPERATIONS is accepted."""
    fits, too_many = 1, 16_384
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (fits, middle) if is_refused(settings_of(middle, MAXIMUM_OPERATIONS)) else (middle, too_many)
    return fits


def with_days_of_saves(found, saves, *, faults=0):
    """Return the measurement ``found`` with ``saves`` saves of ENDURE and ``faults`` faults.

    The times have as many digits as the times of real clocks.
    """
    each = DAYS * 86_400 / saves
    at = tuple(each * n + 0.123456789012 for n in range(saves))
    endurance = Endurance(requested_seconds=DAYS * 86_400.0, seconds=DAYS * 86_400.0 + 1 / 3, kept=2, start_seconds=at,
                          save_seconds=tuple(each / 3 + n * 1e-7 for n in range(saves)))  # fmt: skip
    assert found.integrity
    wrong = Fault(kind="flipped", rank=0, host="node-with-a-long-name-17.example.org", checkpoint=1, file="f" * 50,
                  tensor="layer_17/3", offset=1 << 40, bytes=4096, detail="")  # fmt: skip
    integrity = dataclasses.replace(found.integrity, fault_count=7 * faults, faults=(wrong,) * faults)
    return dataclasses.replace(found, integrity=integrity, patterns=Patterns(endurance=endurance))


def write_run_of(directory, processes, operations, saves, *, faults=0):
    gates = directory.with_name("gates.toml")
    gates.write_text('name = "lasting"\nextends = "speed-only"\n[requirements]\nENDURE = { gate = "required" }\n')
    fields = {"ckpt_ranks": str(processes), "ckpt_operations": str(operations), "ckpt_duration": f"{DAYS}d",
            "ckpt_suite": "performance,endurance", "ckpt_gate_table": str(gates)}  # fmt: skip
    return synthetic_run.write_run(
        directory, options=fields, change=lambda m: with_days_of_saves(m, saves, faults=faults)
    )


def count_values(file):
    data = file.read_bytes()
    return sum(data.count(mark) for mark in (b",", b"[", b"{"))


@pytest.mark.parametrize(
    ("operations", "saves", "faults"),
    [
        pytest.param(20, 2_000, 0, id="some hours"),
        pytest.param(
            MAXIMUM_OPERATIONS, MAXIMUM_ENDURANCE_SAVES, MAXIMUM_FAULTS, id="the longest", marks=pytest.mark.thorough
        ),
    ],
)
def test_a_run_that_lasted_is_judged_and_verified(tmp_path, capsys, operations, saves, faults):
    processes = maximum_processes() if operations == MAXIMUM_OPERATIONS else 2
    settings = settings_of(processes, operations)
    (planned,) = plan_run(settings, synthetic_run.SYNTHETIC_TARGET).checkpoints
    directory = tmp_path / "run"
    write_run_of(directory, processes, operations, saves, faults=faults)
    report, events = directory / "report.json", directory / "events.jsonl"
    assert count_values(report) < values_of(planned, settings) + 20_000 <= strict_json.MAXIMUM_VALUES
    assert report.stat().st_size < strict_json._MAXIMUM_BYTES
    assert events.stat().st_size < strict_json._MAXIMUM_BYTES_OF_LINES
    assert len(list(strict_json.read_lines(events))) < strict_json._MAXIMUM_LINES / 4
    assert main(["verify", str(directory), "--json"]) == 0
    checks = {c["name"]: c["outcome"] for c in json.loads(capsys.readouterr().out)["checks"]}
    assert {checks[name] for name in ("digests", "verdicts", "pages")} == {"holds"}
    assert main(["judge", str(directory), "--json"]) == (1 if faults else 0)
    outcomes = {v["id"]: v["outcome"] for v in json.loads(capsys.readouterr().out)["requirements"]}
    assert (outcomes["SAVE"], outcomes["ENDURE"]) == ("met", "met")
    assert outcomes["INTEGRITY"] == ("failed" if faults else "met")


def test_the_longest_possible_event_log_can_be_read():
    """The longest possible event log can be read: four subjects with the maximum of operations, and ENDURE."""
    lines = 4 * (5 * MAXIMUM_OPERATIONS + 2 * FACTS_OF_ENDURANCE + 100)
    assert lines < strict_json._MAXIMUM_LINES
    assert 28 * strict_json.MAXIMUM_VALUES < strict_json._MAXIMUM_BYTES


@pytest.mark.parametrize(
    ("processes", "more"),
    [(1024, {"ckpt_operations": "1000"}), (16_384, {"ckpt_operations": "70"})],
)
def test_a_record_that_nobody_could_read_is_refused_before_the_run(processes, more):
    settings = settings_of(processes, 10, **more)
    with pytest.raises(UsageError, match=r"The report of this run would contain .* values") as refused:
        check_record(plan_run(settings, synthetic_run.SYNTHETIC_TARGET), settings)
    assert "--ckpt-operations" in refused.value.remedy


@pytest.mark.parametrize("models", ["llama3-8b", "all"])
def test_usual_command_lines_are_not_refused(models):
    """A run of 1,024 ranks with ten operations and saves for seven days is accepted, also with all models."""
    fields = {"ckpt_model": models, "ckpt_mode": "auto", "ckpt_suite": "performance,contention,endurance",
            "ckpt_duration": "7d", "ckpt_profile": "acceptance"}  # fmt: skip
    assert not is_refused(settings_of(1024, 10, **fields))


def test_a_log_keeps_its_beginning_and_its_end(tmp_path):
    log = BoundedLog(tmp_path / "rank-0.log", 10_000)
    for number in range(20_000):
        log.write(f'{{"event": "beat", "number": {number}}}')
        log.flush()
        assert log._file.stat().st_size <= 10_050
    lines = log._file.read_text().splitlines()
    listed = [n for n, line in enumerate(lines) if not line.startswith("{")]
    assert len(listed) == 1
    before, after = lines[: listed[0]], lines[listed[0] + 1 :]
    numbers = [json.loads(line)["number"] for line in (*before, *after)]
    assert numbers[: len(before)] == list(range(len(before)))
    assert numbers[len(before) :] == list(range(20_000 - len(after), 20_000))
    left_out = int(lines[listed[0]].replace(",", "").split()[1])
    assert left_out == 20_000 - len(before) - len(after)
    assert [p.name for p in tmp_path.iterdir()] == ["rank-0.log"]


def test_the_logs_of_all_ranks_stay_far_below_what_a_directory_may_hold():
    for processes in (1, 8, 1024, 16_384):
        assert (processes + 1) * bytes_of_log(processes) <= 300 << 20
