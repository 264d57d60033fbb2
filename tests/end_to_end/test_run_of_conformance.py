"""The conformance suite end to end: which checks run, which do not, and the requirements on a second client."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ckpt.facts.checks import checks_for
from tests.support.actions import actions
from tests.support.end_to_end import SUBJECT, TINY, Run, Runner, counted_steps, progress_lines, temporary_runner
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving

LOCAL = ("--ckpt-gate-table=posix-local", "--ckpt-suite=conformance", *TINY)


@pytest.fixture(scope="module")
def local_run(create_home) -> Run:
    with temporary_runner(create_home("conformance")) as runner:
        return runner.run(*LOCAL, "-n", "2")


def behaviour_outcomes(run: Run) -> dict[str, dict[str, object]]:
    return {
        f"{v['id']}.{v['subject']}": v for v in run.document["requirements"] if not v["subject"].startswith(SUBJECT)
    }


def test_on_a_healthy_local_disk_every_check_is_met(local_run: Run) -> None:
    found = behaviour_outcomes(local_run)
    assert {name: v["outcome"] for name, v in found.items() if v["outcome"] != "met"} == {}
    assert {"COMMIT.file", "EXCLUSIVE.create", "NAMES.many", "LIVE.calls", "DURABLE.rank-killed"} <= set(found)


def test_checks_that_need_two_clients_are_not_in_a_run_on_local_storage(local_run: Run) -> None:
    assert not [
        name for name in behaviour_outcomes(local_run) if "second" in name or name.startswith(("VISIBLE", "STALE"))
    ]


def test_requirements_of_suites_that_were_not_selected_are_not_run(local_run: Run) -> None:
    assert local_run.code == 8
    assert local_run.outcomes() == dict.fromkeys(local_run.outcomes(), "not run")
    assert "performance suite not selected" in local_run.verdict("SAVE")["because"].lower()
    assert local_run.document["measurements"] == []


def test_every_observation_is_kept_with_the_command_that_reproduces_it(local_run: Run) -> None:
    seen = {f"{o['requirement']}.{o['subject']}": o for o in local_run.document["observations"]}
    assert set(seen) == set(behaviour_outcomes(local_run))
    for name, observation in seen.items():
        kept = json.loads((local_run.report / "observations" / f"{name}.json").read_text())
        assert kept == observation
        assert observation["trials"] > 0
        assert f"pytest_ckpt.conformance {name} --directory=" in observation["reproduce"]


def test_nothing_stays_on_the_target(local_run: Run) -> None:
    assert local_run.left_on_target == []
    assert local_run.document["left_behind"] == []


def test_the_terminal_and_the_certificate_report_how_the_target_behaves(local_run: Run) -> None:
    met = len(behaviour_outcomes(local_run))
    assert f"behaviour checks: {met} met" in local_run.text
    page = (local_run.report / "certificate.html").read_text()
    assert "Behaviour of the target" in page
    assert page.count("COMMIT</a> file") == 1


@pytest.mark.thorough
def test_without_the_suite_of_behaviour_a_run_on_shared_terms_is_incomplete(create_home) -> None:
    with temporary_runner(create_home("speed")) as runner:
        run = runner.run("--ckpt-gate-table=posix-local", "--ckpt-suite=performance", *TINY)
    assert run.code == 8
    assert set(run.outcomes().values()) == {"met"}
    assert run.verdict("COMMIT", "file")["outcome"] == "not run"
    assert "COMMIT file" in run.text


def test_the_shared_gate_table_requires_a_second_client_and_a_small_volume_but_no_power_cut(
    runner: Runner,
) -> None:
    run = runner.run("--ckpt-gate-table=posix-shared", "--ckpt-suite=conformance", "-k", "LIVE or CAPABILITIES", *TINY)
    assert run.code == 8
    for name, words in (
        ("VISIBLE.read-after-close", "--ckpt-second-mount"),
        ("FULL.mid-save", "--ckpt-small-volume"),
    ):
        verdict = run.verdict(*name.split("."))
        assert (verdict["outcome"], verdict["severity"]) == ("not run", "required")
        assert words in run.text or words in verdict["because"]
    # A network mount is not affected by a power switch. So a power cut counts if its command is given; otherwise the
    # page says that it is missing.
    assert "DURABLE.power-cut" not in behaviour_outcomes(run)
    assert "--ckpt-actions [power_cut] command" in (run.report / "certificate.html").read_text()
    # Checks that cannot run are not counted as remaining steps.
    made = len(run.document["observations"])
    assert counted_steps(run.text) == [(number, made) for number in range(1, made + 1)]
    assert progress_lines(run.text)[0].startswith(f"[1/{made}] check LIVE.calls: ")


@pytest.mark.thorough
def test_behaviour_alone_needs_neither_space_for_checkpoints_nor_ranks(runner: Runner) -> None:
    """If only the conformance suite is selected, a run starts no ranks and needs no space for checkpoints.

    The model has its full size, which is larger than any disk of the tests.
    """
    run = runner.run("--ckpt-gate-table=posix-local", "--ckpt-suite=conformance", "-k", "CAPABILITIES", cluster=16_000)
    assert run.code == 8
    assert "no checkpoint is written" in run.text
    assert run.verdict("CAPABILITIES", "names")["outcome"] == "met"
    assert run.launches == ["checks"]


def refused(runner: Runner, *options: str) -> str:
    run = runner.run(*LOCAL, *options)
    assert run.code == 4
    assert run.left_on_target == []
    assert not run.report.exists()
    return run.text


@pytest.mark.thorough
def test_a_second_mount_must_be_another_mount_of_the_same_storage(runner: Runner, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert "is the target itself" in refused(runner, f"--ckpt-second-mount={runner.target}")
    assert "is not a directory" in refused(runner, f"--ckpt-second-mount={tmp_path / 'nothing'}")
    assert "is not the same storage" in refused(runner, f"--ckpt-second-mount={other}")


def test_a_bind_mount_is_no_second_client(runner: Runner, mount) -> None:
    place = mount.bind(runner.target)
    assert "one mount to the kernel" in refused(runner, f"--ckpt-second-mount={place}")


def test_a_directory_that_would_take_too_much_to_fill_is_refused(runner: Runner, tmp_path: Path) -> None:
    assert "is not a directory that can be written to" in refused(runner, f"--ckpt-small-volume={tmp_path / 'nothing'}")


def test_an_unknown_requirement_in_a_table_of_gates_is_named(runner: Runner) -> None:
    (runner.home / "own.toml").write_text(
        'name = "ours"\nextends = "posix-local"\n[requirements]\nCOMIT = { gate = "off" }\n'
    )
    text = refused(runner, "--ckpt-gate-table=own.toml")
    assert "'COMIT' is not a known requirement (did you mean 'COMMIT'?)" in text


@pytest.mark.thorough
def test_a_relaxed_limit_appears_in_the_report_and_the_certificate(runner: Runner) -> None:
    (runner.home / "own.toml").write_text(
        'name = "ours"\nextends = "speed-only"\n[requirements]\nREPEAT = { limit = 9 }\n'
    )
    run = runner.run("--ckpt-gate-table=own.toml", *TINY)
    sentence = "The limit of REPEAT is 9 (speed-only: 0.1)."
    assert run.code == 0
    assert any(sentence in line for line in run.document["disclosures"])
    assert any(sentence in line for line in run.document["grade_reasons"])
    assert sentence in (run.report / "certificate.html").read_text()
    assert run.verdict("REPEAT")["limit"] == 9


@pytest.mark.thorough
def test_with_all_inputs_every_check_of_the_shared_gate_table_is_met(runner: Runner, mount) -> None:
    """With a second client, power cuts and a small volume, every check runs and passes on a target without faults.

    The limits of a second are longer here, because a busy machine can pause a client for a second.
    """
    need_fuse()
    table = runner.home / "patient.toml"
    timed = [f"STALE.{name}" for name in ("attributes", "names", "negative-names")]
    rows = "".join(f'"{name}" = {{ limit = 30 }}\n' for name in (*timed, "POINTER.overwrite-second-client"))
    table.write_text(f'name = "patient"\nextends = "posix-shared"\n[requirements]\n{rows}')
    with misbehaving(runner.home, second=True) as target, misbehaving(mount("tmpfs", 96)) as small:
        run = runner.run(
            *TINY,
            f"--ckpt-gate-table={table}",
            "--ckpt-suite=conformance",
            f"--ckpt-second-mount={target.second}",
            actions(power_cut=shlex.join(target.power_cut_command), power_cuts="2"),
            f"--ckpt-small-volume={small.path}",
            target=target.path,
            report=mount("tmpfs", 64) / "report",
        )
        found = behaviour_outcomes(run)
        assert {name: v["because"] for name, v in found.items() if v["outcome"] != "met"} == {}
        assert set(found) == {check.name for check in checks_for("posix")}
        assert "2, " in run.verdict("DURABLE", "power-cut")["detail"]
        assert run.document["environment"]["second_client"].startswith(str(target.second))
        assert run.left_on_target == [], run.text
        assert list(small.path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_the_power_of_a_loop_device_is_cut_by_our_own_command(kind: str, runner: Runner, mount) -> None:
    place = mount(kind, 400)
    command = shlex.join([sys.executable, "-m", "pytest_ckpt.targets.posix.power_cut", "--patience=300", str(place)])
    run = runner.run(*LOCAL, actions(power_cut=command), "-k", "DURABLE", target=place)
    verdict = run.verdict("DURABLE", "power-cut")
    assert (verdict["outcome"], verdict["severity"]) == ("met", "required"), (verdict["because"], verdict["detail"])
    assert "of power cuts lose anything" in verdict["detail"]
    assert [name for name in run.left_on_target if name != "lost+found"] == []


@pytest.mark.thorough
def test_a_target_whose_client_dies_is_reported_once(runner: Runner, create_home) -> None:
    """If the FUSE process of the target is killed between two checks, one or two checks fail because of the kill.

    All later checks are "not run".
    """
    need_fuse()
    with misbehaving(create_home("dies")) as target:
        started = runner.start(*LOCAL, "--ckpt-suite=conformance", target=target.path)
        first = started.report / "observations"
        started.until(lambda: first.exists() and len([*first.iterdir()]) > 2, "some checks were made")
        target.kill()
        run = started.finish()
    seen = behaviour_outcomes(run)
    failed = {name: v for name, v in seen.items() if v["outcome"] == "failed"}
    left = [v for v in seen.values() if v["outcome"] == "not run"]
    # 1 if the failed check is required, otherwise 8.
    assert run.code in (1, 8), run.text
    assert "error of pytest-ckpt" not in run.text
    # The current check and the next one may get different errors from the same kill.
    assert 1 <= len(failed) <= 2, failed
    assert len(left) > 10
    because = {v["because"] for v in left}
    assert all("The target answers " in each and " since check " in each for each in because), because


def test_a_small_volume_of_another_kind_is_no_evidence_about_the_target(runner: Runner, mount) -> None:
    small = mount("tmpfs", 96)
    words = (*LOCAL, "--ckpt-suite=conformance", f"--ckpt-small-volume={small}", "-k", "FULL")
    run = runner.run(*words)
    assert run.code == 8, run.text
    seen = [v for v in behaviour_outcomes(run).values() if v["id"] in ("FULL", "COMMIT-FULL")]
    assert {v["outcome"] for v in seen} == {"not run"}
    kind = run.document["environment"]["target"]["kind"]
    assert all(f"{small} is of another kind (tmpfs) than the target ({kind})" in v["because"] for v in seen), seen
    assert list(small.iterdir()) == []


def test_a_second_mount_that_is_gone_accuses_no_storage(runner: Runner, create_home) -> None:
    """If the second mount disappears during the run, the checks that need this mount are "not run".

    Their reason names the mount.
    """
    need_fuse()
    with misbehaving(create_home("second"), second=True) as target:
        words = (
            *TINY,
            "--ckpt-gate-table=posix-shared",
            "--ckpt-suite=conformance",
            f"--ckpt-second-mount={target.second}",
        )
        started = runner.start(*words, "-k", "VISIBLE or STALE", target=target.path)
        started.until((started.report / "session.json").exists, "the run is open")
        subprocess.run(["umount", "--lazy", target.second], check=True)
        run = started.finish()
    lost = [o for o in run.document["observations"] if "no longer shows the run's directory" in o["not_run"]]
    assert lost, run.text
    failed = [v for v in behaviour_outcomes(run).values() if v["outcome"] == "failed"]
    # The check that was running.
    assert len(failed) <= 1, failed


def test_a_second_mount_of_another_kind_is_no_evidence_about_the_target(runner: Runner, create_home) -> None:
    need_fuse()
    with misbehaving(create_home("over")) as over:
        words = (
            *TINY,
            "--ckpt-gate-table=posix-shared",
            "--ckpt-suite=conformance",
            f"--ckpt-second-mount={over.path}",
        )
        run = runner.run(*words, "-k", "VISIBLE or STALE", target=over.backing)
    seen = [v for v in behaviour_outcomes(run).values() if v["id"] in ("VISIBLE", "STALE")]
    assert {v["outcome"] for v in seen} == {"not run"}, run.text
    assert any("is of another kind (fuse" in v["because"] for v in seen), seen
