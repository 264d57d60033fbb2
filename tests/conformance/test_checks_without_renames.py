"""If a target refuses to rename directories, checks commit with a marker file, as saves on such a target do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pytest_ckpt.facts.observation import Observation
from tests.support.check_command import anomaly_kinds, run_check
from tests.support.crash_checks import SMALL
from tests.support.targets.misbehaving import Target, with_small_volume

REFUSED = "rename of a directory is refused"
OF_SAVES = ["DURABLE.rank-killed", "DURABLE.power-cut", "LIVE.calls", "FULL.mid-save", "COMMIT-FULL.each-phase"]
# A job that commits first and then writes its data.
MARKED_TOO_EARLY = """
from pathlib import Path
from pytest_ckpt.targets.posix.commit import CommitByMarker
true_mkdir = Path.mkdir
def mkdir(self, *arguments, **more):
    true_mkdir(self, *arguments, **more)
    if self.name.startswith("checkpoint-"):
        for name, text in CommitByMarker().files_of(self).items():
            (self / name).write_bytes(text)
Path.mkdir = mkdir
CommitByMarker.perform = lambda self, final, calls: None
"""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A target with a second client, and a small target of the same type that serves as the small volume."""

    target: Target
    small: Target

    def run_check(self, check: str, *, sabotage: str = "", commit: str = "marker") -> Observation:
        return run_check(
            check,
            self.target.path,
            f"--small-directory={self.small.path}",
            f"--second-directory={self.target.second}",
            f"--power-cut={shlex.join(self.target.power_cut_command)}",
            "--power-cuts=1",
            f"--commit={commit}",
            share=0.03,
            sabotage=sabotage,
        )


@pytest.fixture(scope="module")
def mounted(create_home) -> Iterator[Gateway]:
    with with_small_volume(create_home) as (target, small):
        yield Gateway(target, small)


@pytest.fixture
def gateway(mounted: Gateway) -> Iterator[Gateway]:
    for each in (mounted.target, mounted.small):
        each.fault(REFUSED)
    yield mounted
    for each in (mounted.target, mounted.small):
        each.clear()
        each.empty()


@pytest.mark.parametrize("check", OF_SAVES)
def test_an_honest_target_without_renames_passes(check: str, gateway: Gateway) -> None:
    seen = gateway.run_check(check)
    assert (seen.anomalies, seen.not_run) == ((), "")
    assert seen.trials > 0
    assert seen.facts["commit"] == "by a marker file: the target refuses to rename a directory"


def test_a_commit_by_rename_is_refused_there(gateway: Gateway) -> None:
    assert anomaly_kinds(gateway.run_check("DURABLE.rank-killed", commit="rename")) == {"a call failed"}


@pytest.mark.parametrize(
    ("check", "fault", "kind"),
    [
        ("DURABLE.rank-killed", "ENOSPC is swallowed", "a saved checkpoint is not what was written"),
        ("DURABLE.power-cut", "fsync of files is lost", "acknowledged bytes lost in a power cut"),
        ("DURABLE.power-cut", "fsync of directories is lost", "acknowledged name lost in a power cut"),
        ("LIVE.calls", "EROFS", "a call failed"),
        ("FULL.mid-save", "ENOSPC is swallowed", "acknowledged bytes are not there"),
        ("COMMIT-FULL.each-phase", "ENOSPC is swallowed", "acknowledged bytes are not there"),
    ],
)
def test_a_fault_is_found_there(check: str, fault: str, kind: str, gateway: Gateway) -> None:
    in_small = check in SMALL
    (gateway.small if in_small else gateway.target).fault(fault, **({"room": 9 << 20} if in_small else {}))
    seen = gateway.run_check(check)
    assert kind in anomaly_kinds(seen)
    assert not seen.not_run


@pytest.mark.parametrize("check", ["DURABLE.rank-killed", "FULL.mid-save"])
def test_a_marker_before_the_data_is_found(check: str, gateway: Gateway) -> None:
    assert anomaly_kinds(gateway.run_check(check, sabotage=MARKED_TOO_EARLY)) == {
        "a broken checkpoint has its marker file"
    }


def test_the_marker_of_an_acknowledged_save_must_survive_too(gateway: Gateway) -> None:
    """If a power cut loses only the markers of acknowledged saves, DURABLE.power-cut fails."""
    sabotage = """
import pytest_ckpt.conformance.posix.durable as durable
true_cut = durable._cut
def cut(context, log, findings, number):
    done = true_cut(context, log, findings, number)
    for path in context.directory.glob("cut-*/*/_COMMITTED"):
        path.unlink()
    return done
durable._cut = cut
"""
    seen = gateway.run_check("DURABLE.power-cut", sabotage=sabotage)
    assert anomaly_kinds(seen) == {"acknowledged name lost in a power cut"}
    assert "_COMMITTED" in seen.anomalies[0].where


def test_no_publication_by_rename_is_waited_for(gateway: Gateway) -> None:
    seen = gateway.run_check("PUBLISH.directory")
    assert seen.not_run.startswith("the target refuses to rename a directory, so no checkpoint is published so")
    assert (seen.anomalies, seen.trials) == ((), 0)


@pytest.mark.parametrize("check", OF_SAVES)
def test_a_target_without_any_rename_passes_too(check: str, gateway: Gateway) -> None:
    for each in (gateway.target, gateway.small):
        each.clear()
        each.fault(REFUSED, files=True)
    seen = gateway.run_check(check)
    assert (seen.anomalies, seen.not_run) == ((), "")
    replaces = check not in ("DURABLE.rank-killed", "FULL.mid-save")
    assert seen.facts.get("rename of a file", "").startswith("refused (Too many open files)" if replaces else "")
    assert ("rename of a file" in seen.facts) == replaces


def test_no_marker_that_is_renamed_is_waited_for_where_a_file_keeps_its_name(gateway: Gateway) -> None:
    gateway.target.clear()
    gateway.target.fault(REFUSED, files=True)
    assert gateway.run_check("PUBLISH.marker").not_run.startswith("the target refuses to rename a file")
    assert gateway.run_check("PUBLISH.pointer").anomalies == ()
    assert anomaly_kinds(gateway.run_check("COMMIT.file")) == {"a call failed"}


@pytest.mark.parametrize("check", ["PUBLISH.marker", "PUBLISH.pointer"])
def test_other_publications_are_checked(check: str, gateway: Gateway) -> None:
    seen = gateway.run_check(check)
    assert (seen.anomalies, seen.not_run) == ((), "")
