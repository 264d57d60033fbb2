"""``pytest-ckpt doctor`` examines a machine and a target, and states a remedy for each problem."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.support.units import format_bytes
from pytest_ckpt.targets.owner import owner_of
from tests.support.jsonschema_validation import violations
from tests.support.machine import file_system_of

pytestmark = pytest.mark.covers(commands=("doctor",))

TWO = ("--ckpt-ranks=2", "--ckpt-mode=open", "--ckpt-model=llama3-8b", "--ckpt-profile=smoke", "--cluster=64")


@pytest.fixture(autouse=True)
def fake_torch(tmp_path_factory, monkeypatch):
    """Put an empty module ``torch`` on the path, because the import of the real one takes two seconds."""
    module = tmp_path_factory.mktemp("stands for torch") / "torch.py"
    module.touch()
    monkeypatch.setenv("PYTHONPATH", f"{module.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return module


def doctor(capsys, *words):
    code = main(["doctor", "--json", *words])
    document = json.loads(capsys.readouterr().out)
    assert not violations(document, "doctor")
    assert (code == 0) == document["can_run"]
    return code, {f["name"]: f for f in document["findings"]}


def test_a_machine_that_can_run_is_reported_as_ready(capsys, tmp_path, monkeypatch, fake_torch):
    fake_torch.unlink()
    monkeypatch.chdir(tmp_path.parent)
    code, found = doctor(capsys, f"--ckpt-target={tmp_path.name}", *TWO)
    assert code == 0
    assert list(found) == [
        "torch", "engines", "mpi4py", "target", "plan", "MPI launch", "cores", "memory", "memory limit",
        "shared memory", "space",
        "drop caches", "residency", "O_DIRECT", "clock", "certificate",
    ]  # fmt: skip
    assert all(f["can"] for f in found.values() if f["needed"])
    assert found["engines"]["can"]
    assert "3 saves write 337 MB and 3 loads read as much: at most " in found["plan"]["description"]
    assert found["MPI launch"]["description"].startswith("2 ranks on ")
    assert " needed" in found["space"]["description"]
    for f in found.values():
        assert f["can"] or f["remedy"], f
    assert not list(tmp_path.iterdir()), "the target is left as it was"


def test_doctor_lists_requirements_that_lack_a_command(capsys, tmp_path):
    words = [f"--ckpt-target={tmp_path}", *TWO, "--ckpt-gate-table=posix-shared", "--json"]
    main(["doctor", *words])
    findings = json.loads(capsys.readouterr().out)["findings"]
    listed = [f for f in findings if f["name"] == "not given"]
    assert [f["description"].partition(" ")[0] for f in listed] == ["FAILOVER", "UPGRADE", "SNAPSHOT"]
    assert all(f["remedy"] and not f["needed"] for f in listed)


def test_leftovers_of_a_killed_run_are_named_with_the_command_that_removes_them(capsys, tmp_path):
    left = tmp_path / "pytest-ckpt-dead"
    left.mkdir()
    owner = owner_of("dead") | {"process_began": 1.0}
    (left / "OWNER.json").write_text(json.dumps(owner))
    code, found = doctor(capsys, f"--ckpt-target={tmp_path}", *TWO)
    assert code == 0
    assert found["left over"]["description"] == f"{left}, by run dead of {owner['host']}"
    assert found["left over"]["remedy"] == f"if that run has ended, remove it: rm -r -- {left}"


def test_the_remedy_for_a_run_of_another_host_requires_that_this_run_has_ended(capsys, tmp_path):
    there = tmp_path / "pytest-ckpt-far"
    there.mkdir()
    (there / "OWNER.json").write_text(json.dumps(owner_of("far") | {"host": "h2"}))
    code, found = doctor(capsys, f"--ckpt-target={tmp_path}", *TWO)
    assert code == 0
    assert found["left over"]["remedy"] == (
        "this host cannot determine whether that run is still in progress, so check h2 first. If no run of "
        f"pytest-ckpt is in progress there, remove it: rm -r -- {there}"
    )


def test_doctor_names_what_is_missing_and_still_examines_the_rest(capsys, tmp_path):
    code, found = doctor(capsys, f"--ckpt-target={tmp_path / 'none'}", "--ckpt-launcher=no-such-launcher")
    assert code == 4
    assert not found["target"]["can"]
    assert "does not exist" in found["target"]["description"]
    assert not found["MPI launch"]["can"]
    assert "no-such-launcher" in found["MPI launch"]["description"]
    assert found["memory"]["description"] == "not known: no rank was started"
    assert found["clock"]["description"].startswith("monotonic")


def test_a_target_in_memory_cannot_be_certified_and_this_is_reported(capsys):
    if file_system_of(Path("/dev/shm")) != "tmpfs":
        pytest.skip("there is no file system in memory")
    with tempfile.TemporaryDirectory(prefix="ckpt-", dir="/dev/shm") as directory:
        words = [f"--ckpt-target={directory}", *TWO, "--ckpt-launcher=no-such-launcher", "--json"]
        main(["doctor", *words])
    findings = json.loads(capsys.readouterr().out)["findings"]
    (listed,) = [f for f in findings if "COLD will fail" in f["description"]]
    assert (listed["name"], listed["can"], "--ckpt-target" in listed["remedy"]) == ("certificate", False, True)


@pytest.mark.thorough
def test_a_launcher_that_fails_is_reported_and_no_secret_of_it(capsys, tmp_path):
    code, found = doctor(capsys, "--ckpt-launcher=false --token=planted-secret", "--ckpt-ranks=2")
    assert code == 4
    assert not found["MPI launch"]["can"]
    assert "planted-secret" not in json.dumps(found)


@pytest.mark.thorough
def test_a_run_that_does_not_fit_is_reported_before_it_is_tried(capsys, tmp_path):
    code, found = doctor(
        capsys, f"--ckpt-target={tmp_path}", "--cluster=64", "--ckpt-model=llama3-8b", "--ckpt-mode=open",
        "--ckpt-ranks=2", "--ckpt-operations=4000",
    )  # fmt: skip
    assert code == 4
    assert not found["space"]["can"]
    assert "Too little space" in found["space"]["description"]
    code, found = doctor(
        capsys, f"--ckpt-target={tmp_path}", "--cluster=64", "--ckpt-model=llama3-1t", "--ckpt-mode=open",
        "--ckpt-ranks=2",
    )  # fmt: skip
    assert code == 4
    assert "fit no layout" in found["plan"]["description"]


@pytest.mark.parametrize("gates", ["posix-shared", "speed-only"])
def test_doctor_requires_the_same_space_as_plan_and_run(capsys, tmp_path, gates):
    """``doctor`` states the same space as ``plan``.

    If no suite is named and the gate table requires the suite contention, the space includes files of this suite.
    """
    words = [f"--ckpt-target={tmp_path}", f"--ckpt-gate-table={gates}", *TWO, "--ckpt-launcher=no-such-launcher"]
    main(["plan", *words, "--json"])
    planned = json.loads(capsys.readouterr().out)["checkpoints"]
    needed = format_bytes(max(checkpoint["space_bytes"] for checkpoint in planned))
    _, found = doctor(capsys, *words)
    assert found["space"]["description"].endswith(f", {needed} needed")


def test_gates_that_cannot_be_read_are_named_and_the_rest_is_still_looked_at(capsys, tmp_path):
    words = [f"--ckpt-target={tmp_path}", "--ckpt-gate-table=no-such-table", *TWO, "--ckpt-launcher=no-such-launcher"]
    code, found = doctor(capsys, *words)
    assert code == 4
    assert not found["gates"]["can"]
    assert found["gates"]["remedy"]
    assert found["space"]["can"]
    assert "plan" not in found


def test_a_library_that_cannot_be_imported_is_named(capsys, fake_torch):
    fake_torch.write_text("raise ImportError('libcudart.so.12: cannot open shared object file')\n")
    code, found = doctor(capsys, "--ckpt-ranks=2", "--ckpt-engine=torch")
    assert code == 4
    assert "libcudart" in found["torch"]["description"]
    assert "pip install" in found["torch"]["remedy"]


def test_a_target_that_cannot_be_used_hides_neither_the_plan_nor_what_a_certificate_needs(capsys, tmp_path):
    words = [f"--ckpt-target={tmp_path / 'none'}", *TWO, "--ckpt-launcher=no-such-launcher", "--json"]
    assert main(["doctor", *words]) == 4
    findings = json.loads(capsys.readouterr().out)["findings"]
    fields = {f["name"] for f in findings if not f["can"]}
    assert {"target", "MPI launch", "certificate"} <= fields
    assert any(f["name"] == "plan" and f["can"] for f in findings)
    assert all(f["remedy"] for f in findings if not f["can"])


def test_for_people_each_line_says_ok_or_what_to_do(capsys, tmp_path):
    assert main(["doctor", "--ckpt-ranks=2", "--ckpt-launcher=no-such-launcher"]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["torch", "ok"]
    at = next(n for n, line in enumerate(lines) if line.startswith("MPI launch    cannot"))
    assert "Name a launcher" in lines[at + 1]
    assert lines[-1] == "NO RUN IS POSSIBLE: fix the lines marked 'cannot'"
