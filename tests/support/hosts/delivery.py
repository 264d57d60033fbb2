"""Common checks for the tests of all launchers: jobs and messages must reach the other hosts completely."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.support.file_systems.table import FILE_SYSTEMS
from tests.support.hosts.final_messages import WORDS
from tests.support.hosts.lab import Step, StepResult

# The directory that the hosts of the labs share.
(_MOOSEFS,) = (row for row in FILE_SYSTEMS if row.name == "MooseFS")


def assert_large_job_arrived(done: StepResult) -> None:
    """Check that a job of a megabyte reached both ranks of h2, and that no command line showed the launch secret."""
    assert json.loads(done.text.splitlines()[-1]) == {"failure": None, "hosts": [["h2", [0, 1]]]}
    assert (done.secrets, done.shown) == (1, ())


def assert_second_client_listed(done: StepResult) -> None:
    """Check that h3 was the second client of the run, and that no files remain.

    The checks with the second client must pass, except the checks that may fail on MooseFS.
    """
    run = done.run
    assert run.document["environment"]["second_client"] == "host h3", run.text
    found = {o["subject"]: (o["anomalies"], o["not_run"]) for o in run.document["observations"]}
    assert any("second" in name for name in found), found
    wrong = {name for name, of in found.items() if "second" in name and of != ([], "")}
    assert wrong <= {name.partition(".")[2] for name in _MOOSEFS.may_fail}, {name: found[name] for name in wrong}
    assert (done.left, done.shown) == ((), ())


def final_message_steps(python: str, *launcher: str, environment: Mapping[str, str] | None = None) -> dict[str, Step]:
    """Return {name: step} of two steps that run `final_messages` on h2 and h3.

    In both steps, the ranks send 6 MB just before they end. In the second step, the last rank omits its final message.
    """
    program = (python, "-m", "tests.support.hosts.final_messages", "h2:1,h3:1")
    return {
        f"last words, {how_much}": Step(words=(*program, how_much, *launcher), environment=environment or {})
        for how_much in ("all", "less")
    }


def assert_final_messages_arrived(done: Mapping[str, StepResult]) -> None:
    """Check the results of the steps of `final_message_steps`.

    In the first step, all data arrived. In the second step, the launch failed because of the missing final message.
    """
    found = {name: json.loads(of.text.splitlines()[-1]) for name, of in done.items() if name.startswith("last words")}
    assert found["last words, all"] == {"failure": None, "whole": {"h2": WORDS, "h3": WORDS}}
    ended = "1 rank ended without a complete report, and the launcher reports success"
    assert found["last words, less"]["failure"] == ["killed", ended]
