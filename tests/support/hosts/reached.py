"""What must have reached other hosts, whatever started ranks and the second client there."""

from __future__ import annotations

import json

from tests.support.hosts.lab import Done


def assert_that_a_large_job_came(done: Done) -> None:
    """A job of a megabyte reached both ranks of h2, and nobody saw the secret of the launch."""
    assert json.loads(done.text.splitlines()[-1]) == {"failure": None, "hosts": [["h2", [0, 1]]]}
    assert (done.secrets, done.shown) == (1, ())


def assert_that_a_second_client_listed(done: Done) -> None:
    """A second client on h3 made every check that needs one; the list of a thousand names arrived."""
    run = done.run
    assert run.document["environment"]["second_client"] == "host h3", run.text
    found = {o["subject"]: (o["anomalies"], o["not_run"]) for o in run.document["observations"]}
    assert any("second" in name for name in found), found
    assert {name: of for name, of in found.items() if "second" in name and of != ([], "")} == {}
    assert (done.left, done.shown) == ((), ())
