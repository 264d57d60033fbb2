"""End-to-end runs on clients whose fsync or clock was replaced by other code.

The run gets no certificate, and no requirement on the storage fails.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_ckpt.evidence.verification import verify_directory
from tests.support.end_to_end import MEASURED, TINY, in_every_rank

NO_FSYNC = "int fsync(int fd) { return 0; }\nint fdatasync(int fd) { return 0; }\n"
SLOW_CLOCK = """
import time
for name in ("perf_counter", "monotonic"):
    def slowed(real=getattr(time, name)):
        return real() / 10
    setattr(time, name, slowed)
"""


def reasons(run):
    return "\n".join(run.document["grade_reasons"])


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs a C compiler")
def test_a_preloaded_fsync_that_does_nothing_is_named_and_certifies_nothing(runner, tmp_path):
    source, library = tmp_path / "no_fsync.c", tmp_path / "no_fsync.so"
    source.write_text(NO_FSYNC)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    run = runner.run(*TINY, environment={"LD_PRELOAD": str(library)})
    assert run.document["grade"] == "rehearsal"
    assert f"{library} answers fsync, fdatasync in place of the C library" in reasons(run)
    assert "The proof of fsync failed: fsync returned on " in reasons(run)
    verdict = run.verdict("DURABLE-CALLS")
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "unproven")
    assert "so the storage is not judged" in verdict["because"]
    assert f"LD_PRELOAD={library}" in run.measurement()["client_proofs"]["disclosed"]


def test_a_clock_at_a_tenth_of_its_speed_certifies_nothing(runner, tmp_path):
    run = runner.run(*TINY, environment=in_every_rank(tmp_path, SLOW_CLOCK))
    assert run.document["grade"] == "rehearsal"
    assert "The clock of rank " in reasons(run)
    assert "by the kernel's uptime" in reasons(run)
    assert "answers time.perf_counter, time.monotonic in place of the C library" in reasons(run).replace("\n", " ")


def test_an_honest_client_proves_fsync_and_clock(runner):
    run = runner.run(*TINY)
    proofs = run.measurement()["client_proofs"]
    assert proofs["interposed"] == []
    assert {e["moment"] for e in proofs["fsyncs"]} == {"before the saves", "after the saves"}
    assert all(e["left_bytes"] == 0 for e in proofs["fsyncs"])
    assert "clock" not in reasons(run)
    assert "answers" not in reasons(run)
    assert run.verdict("DURABLE-CALLS")["outcome"] == "met"
    assert run.left_on_target == []


ALTERED = """
import pytest_ckpt.plugin.items as items
import dataclasses
decide = items.decide
items.decide = lambda *facts: dataclasses.replace(
    decide(*facts), outcome="met", reason="met", because="All is well.", margin=0.9
)
"""


def test_a_conftest_that_alters_the_judges_alters_no_certificate(runner):
    (runner.home / "conftest.py").write_text(ALTERED)
    # No storage is fast enough for such a cluster.
    run = runner.run(*TINY[:-1], "--ckpt-cluster=5000000", "--ckpt-suite=performance")
    assert run.verdict("SAVE")["outcome"] == "failed"
    assert run.code == 1
    assert "pytest's process decided 'met' for SAVE of " in reasons(run)
    assert f"conftest {runner.home / 'conftest.py'}" in run.document["environment"]["recorders"]
    assert "Could have altered the recording" in (run.report / "certificate.html").read_text()


LENIENT = """
import dataclasses
import pytest_ckpt.config.gate_files as gate_files
built_in = gate_files.built_in
gate_files.built_in = lambda name: dataclasses.replace(built_in(name), kinds={"SAVE": "advisory"}, relaxed=())
"""


def test_a_conftest_that_alters_the_gates_is_noticed_and_certifies_nothing(runner):
    (runner.home / "conftest.py").write_text(LENIENT)
    run = runner.run(*TINY[:-1], "--ckpt-cluster=5000000", "--ckpt-suite=performance")
    assert run.verdict("SAVE")["outcome"] == "failed"
    assert run.code != 0
    assert "The tables of the run differ from the tables of this version (gate_table)" in reasons(run)


@pytest.mark.parametrize("spread", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_conftest_that_collection_loads_is_named_too(runner, spread):
    directory = runner.home / "beside" / "deep"
    directory.mkdir(parents=True)
    (directory / "conftest.py").write_text("")
    (directory / "test_nothing.py").write_text("def test_nothing(): pass\n")
    run = runner.run(*TINY, "-k", "SAVE or nothing", *spread, "pytest_ckpt.suites", "beside")
    assert f"conftest {directory / 'conftest.py'}" in run.document["environment"]["recorders"]
    assert [e.name for e in verify_directory(run.report, None) if e.outcome == "broken"] == []


@pytest.mark.parametrize("part", ["verdicts", "fixtures", "late"])
def test_a_run_without_a_part_of_the_plugin_is_refused(runner, part):
    run = runner.run(*TINY, environment={"PYTEST_ADDOPTS": f"-p no:pytest-ckpt-{part}"})
    assert run.code == 4
    assert f"pytest-ckpt-{part} is switched off" in run.text
    assert run.left_on_target == []
    assert not run.report.exists()


def test_all_measured_requirements_are_judged_whichever_are_selected(runner):
    run = runner.run(*TINY, "-k", "SAVE")
    assert {name: run.verdict(name)["outcome"] for name in ("SAVE", "LOAD", "INTEGRITY", "COLD")} == dict.fromkeys(
        ("SAVE", "LOAD", "INTEGRITY", "COLD"), "met"
    )


@pytest.mark.thorough
def test_a_run_of_the_strategies_judges_the_plain_saves_that_it_measured(runner):
    run = runner.run(*TINY, "--ckpt-suite=strategies", "--ckpt-strategy=sync,async")
    assert run.code in (0, 8), run.text
    outcomes = {v["id"]: v["outcome"] for v in run.document["requirements"] if v["subject"] == MEASURED}
    assert {outcomes[name] for name in ("SAVE", "LOAD", "INTEGRITY")} == {"met"}
    assert [e.name for e in verify_directory(run.report, None) if e.outcome == "broken"] == []


@pytest.mark.thorough
def test_the_key_that_was_read_before_the_run_signs_it_even_if_its_file_is_gone(runner):
    key = runner.home / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True, capture_output=True)
    (runner.home / "conftest.py").write_text(
        f"import pathlib\ndef pytest_collection_finish(): pathlib.Path({str(key)!r}).unlink(missing_ok=True)\n"
    )
    run = runner.run(*TINY, f"--ckpt-sign={key}")
    assert not key.exists()
    assert run.code in (0, 8), run.text
    assert (run.report / "attestation.dsse.json").exists()
    page = (run.report / "certificate.html").read_text()
    assert "attestation.dsse.json, made with the key of whoever ran it" in page


FAKED_TIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime*.so.1"))


@pytest.mark.thorough
@pytest.mark.skipif(not FAKED_TIME, reason="needs libfaketime")
def test_time_that_a_library_fakes_certifies_nothing(runner):
    library = FAKED_TIME[0]
    run = runner.run(*TINY, environment={"LD_PRELOAD": str(library), "FAKETIME": "+0 x0.5"})
    assert run.document["grade"] == "rehearsal"
    assert f"{library.resolve()} answers " in reasons(run)
    assert "The clock of rank " in reasons(run)
    assert run.left_on_target == []
