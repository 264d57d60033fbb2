"""The recipes for nightly runs: their files are valid, and their commands work on a small target."""

from __future__ import annotations

import fcntl
import json
import random
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from pytest_ckpt.config.options import resolve
from tests.support.doc_examples import Commands
from tests.support.doc_pages import DOCS

RECIPES = DOCS / "recipes"
# Replaces a real night: two ranks, and a cluster so small that any disk is fast enough.
TINY = {
    "ckpt_cluster": 8,
    "ckpt_model": "llama3-8b",
    "ckpt_mode": "open",
    "ckpt_ranks": 2,
    "ckpt_scale": "1/10000",
    "ckpt_operations": 2,
}
VARIABLES = {"CKPT_BIN", "CKPT_HISTORY"}


class Night:
    """A directory in which a nightly recipe runs, with the target, the history and the programs of the recipe."""

    def __init__(self, home: Path) -> None:
        self.commands = Commands(home)
        self.home = self.commands.home
        self.target, self.history = home / "target", home / "history"
        self.target.mkdir()
        shutil.copy(RECIPES / "nightly.sh", self.home)
        self.configure()

    def configure(self, **changes: object) -> None:
        """Write nightly.toml as delivered, but with the options of a small run and with the options in ``changes``."""
        table = tomllib.loads((RECIPES / "nightly.toml").read_text())
        table |= {"ckpt_target": str(self.target), **TINY, **changes}
        lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
        (self.home / "nightly.toml").write_text("\n".join(lines) + "\n")

    def run(self, script: str, **more: str) -> tuple[int, str]:
        """Run a shell script with the variables that a recipe sets; return (exit code, output)."""
        return self.commands.run(script, CKPT_BIN=str(self.commands.programs), CKPT_HISTORY=str(self.history), **more)

    @property
    def outcome(self) -> dict[str, object]:
        """Return grade and exit code from the report of the latest run."""
        report = json.loads((self.home / "ckpt-report" / "report.json").read_text())
        return {"grade": report["grade"], "exit_code": report["exit_code"]}


@pytest.fixture
def night(create_home: Callable[[str], Path]) -> Night:
    return Night(create_home("night"))


def run_cron() -> Iterator[str]:
    for line in (RECIPES / "cron").read_text().splitlines():
        if job := re.fullmatch(r"(?:\S+\s+){5}ckpt\s+(.*)", line):
            yield job[1]


def run_github() -> Iterator[str]:
    (job,) = yaml.safe_load((RECIPES / "github-actions.yml").read_text())["jobs"].values()
    assert set(job["env"]) == VARIABLES
    yield from (step["run"] for step in job["steps"] if "run" in step)


def run_gitlab() -> Iterator[str]:
    (job,) = yaml.safe_load((RECIPES / "gitlab-ci.yml").read_text()).values()
    assert set(job["variables"]) == VARIABLES
    yield "\n".join(job["script"])


def run_jenkins() -> Iterator[str]:
    text = (RECIPES / "Jenkinsfile").read_text()
    assert set(re.findall(r"(CKPT_\w+) = ", text)) == VARIABLES
    yield from (found[1] or found[2] for found in re.finditer(r"sh\((?:.*script: )?'([^']*)'\)|sh '([^']*)'", text))


RECIPES_OF = {
    "cron": run_cron,
    "github-actions.yml": run_github,
    "gitlab-ci.yml": run_gitlab,
    "Jenkinsfile": run_jenkins,
}


@pytest.mark.thorough
@pytest.mark.parametrize("recipe", RECIPES_OF)
def test_the_commands_of_a_recipe_measure_and_compare(recipe, night):
    scripts = list(RECIPES_OF[recipe]())
    assert scripts
    for script in scripts:
        code, found = night.run(script, CKPT_HOME=str(night.home))
        assert code == 0, found
    assert night.outcome == {"grade": "rehearsal", "exit_code": 0}
    assert (night.home / "ckpt-report" / "junit.xml").read_text().startswith("<?xml")
    assert "Every run" in (night.home / "trend.html").read_text()
    assert len((night.history / "history.jsonl").read_text().splitlines()) == 1
    assert not list(night.target.iterdir())
    if recipe == "cron":
        assert found == ""  # no mail was sent
        assert "no regression of 10 %" in (night.home / "night.log").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changes", "code", "expected_text"),
    [
        # A target in memory fails COLD.
        ({"ckpt_target": "/dev/shm"}, 1, "FAILED: a required requirement was not met"),
        ({"ckpt_target": "/nonexistent"}, 4, "NOT STARTED: the message above says what to fix"),
        ({"ckpt_model": "llama3-8b,llama3-70b"}, 8, "INCOMPLETE: nothing failed"),
    ],
)
def test_a_night_that_does_not_pass_never_ends_with_0(changes, code, expected_text, night):
    """The recipe exits with the exit code of the run, and removes the files of the previous night."""
    (night.home / "ckpt-report").mkdir()
    (night.home / "ckpt-report" / "report.json").write_text("{}")
    (night.home / "ckpt-report" / "junit.xml").write_text("yesterday's")
    night.configure(**changes)
    ended, found = night.run("./nightly.sh")
    assert ended == code, found
    assert expected_text in found
    if code == 4:
        assert not (night.home / "ckpt-report").exists()
    else:
        assert night.outcome["exit_code"] == code
        assert "yesterday" not in (night.home / "ckpt-report" / "junit.xml").read_text()


@pytest.mark.thorough
def test_mail_goes_out_when_a_night_did_not_pass(night):
    night.configure(ckpt_target="/nonexistent")
    (script,) = run_cron()
    code, found = night.run(script, CKPT_HOME=str(night.home))
    assert code == 0
    assert found.startswith("exit code 4\n")
    assert "--ckpt-target /nonexistent does not exist." in found


@pytest.mark.thorough
def test_a_night_that_passed_but_is_slower_than_those_before_fails(night):
    code, found = night.run("./nightly.sh")
    assert code == 0, found
    lines = night.history / "history.jsonl"
    tonight = json.loads(lines.read_text())
    rng = random.Random(1)
    made = []
    for number in range(30):
        # The last four of 30 nights are slow. The run below is the fifth slow one.
        speed = 1.0 if number >= 26 else 0.01 * rng.uniform(0.9, 1.1)
        entry = json.loads(json.dumps(tonight)) | {"id": f"made-{number}", "started": f"2020-01-{number + 1:02d}T02:00"}
        for subject in entry["subjects"]:
            for kind in ("save", "load"):
                subject[f"{kind}_seconds"] = [seconds * speed for seconds in subject[f"{kind}_seconds"]]
        made.append(json.dumps(entry))
    lines.write_text("\n".join(made) + "\n")
    code, found = night.run("./nightly.sh")
    assert night.outcome["exit_code"] == 0
    assert code == 1, found
    assert "REGRESSION of at least 10 %" in found


@pytest.mark.thorough
def test_two_nights_never_run_side_by_side(night):
    (script,) = run_cron()
    with (night.home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _, found = night.run(script, CKPT_HOME=str(night.home))
    assert found == "exit code 75\n"
    assert not (night.home / "ckpt-report").exists()


def test_the_settings_that_ship_are_options():
    table = tomllib.loads((RECIPES / "nightly.toml").read_text())
    settings = resolve({"ckpt_config": str(RECIPES / "nightly.toml")}, {})
    assert settings.profile == "nightly"
    assert {f"--{name.replace('_', '-')}" for name in table} == {
        origin.option for origin in settings.origins if origin.source.endswith("nightly.toml")
    }


def test_a_line_of_a_crontab_holds_nothing_that_cron_takes_for_its_end():
    """Each % in a crontab line is escaped, because cron reads an unescaped % as the end of the command."""
    jobs = list(run_cron())
    assert len(jobs) == 1
    assert not re.search(r"(?<!\\)%", jobs[0])
    for page in DOCS.glob("*.md"):
        for line in page.read_text().splitlines():
            if re.match(r"\s*(?:[\d*/,-]+\s+){5}\S", line):
                assert not re.search(r"(?<!\\)%", line), f"{page.name}: {line}"


def test_nightly_results_are_published_whatever_the_outcome():
    github = yaml.safe_load((RECIPES / "github-actions.yml").read_text())
    (job,) = github["jobs"].values()
    published = [step for step in job["steps"] if step.get("uses", "").startswith(("mikepenz", "actions/upload"))]
    assert len(published) == 2
    assert all(step["if"] == "${{ always() }}" for step in published)
    assert published[0]["with"]["report_paths"] == "ckpt-report/junit.xml"
    assert "ckpt-report" in published[1]["with"]["path"].split()
    assert "self-hosted" in job["runs-on"]
    (gitlab,) = yaml.safe_load((RECIPES / "gitlab-ci.yml").read_text()).values()
    assert gitlab["artifacts"]["when"] == "always"
    assert gitlab["artifacts"]["reports"]["junit"] == "ckpt-report/junit.xml"
    assert gitlab["allow_failure"] == {"exit_codes": 8}
    jenkins = (RECIPES / "Jenkinsfile").read_text()
    after = jenkins.partition("post {")[2]
    assert "always {" in after
    assert "junit testResults: 'ckpt-report/junit.xml', allowEmptyResults: true" in after
    assert jenkins.count("{") == jenkins.count("}")
