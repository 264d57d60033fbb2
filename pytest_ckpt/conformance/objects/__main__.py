"""``python -m pytest_ckpt.conformance.objects CHECK --target=s3://…``: run one check and print its observation."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import sys

from pytest_ckpt.conformance.context import Findings
from pytest_ckpt.conformance.not_run import NotRun
from pytest_ckpt.conformance.objects.context import ObjectContext
from pytest_ckpt.conformance.objects.session import Asked, Session
from pytest_ckpt.conformance.posix.client import SAFE_PATH, Client
from pytest_ckpt.conformance.telling import Teller, exit_code, lines, run
from pytest_ckpt.facts.checks import BY_NAME, Check, in_room
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.keys import read_url

AGENT = "pytest_ckpt.conformance.objects.agent"
# A request to an agent may be a race, or many objects to put.
_REQUEST_SECONDS = 300.0


def main() -> int:
    """Make the check; exit 0 when nothing was wrong, 1 when something was, 8 when it could not be made."""
    asked = _parser().parse_args()
    check, tell = BY_NAME[asked.check], Teller()
    place = read_url(asked.target)
    access = Access(
        endpoints=tuple(filter(None, asked.endpoint.split(","))),
        ca_bundle=asked.ca_bundle,
        embedded="by hand" if asked.embedded else "",
    )
    first = Asked(
        bucket=place.bucket,
        prefix=f"{place.below}{check.name}-{os.getpid()}",
        access=access,
        seed=asked.seed,
        patience_seconds=asked.patience,
        scheme=place.scheme,
    )
    here = Session(first, tell)

    def client(name: str) -> Client:
        words = dataclasses.replace(first, access=access.of_client(1))
        command = (sys.executable, *SAFE_PATH, "-m", AGENT, json.dumps(to_plain(words)))
        return Client(command, name=name, patience=_REQUEST_SECONDS, tell=tell)

    other = client("the second client")
    context = ObjectContext(
        here=here, other=other, third=lambda: client("a third client"), seed=asked.seed, share=asked.share
    )
    try:
        seen = make(check, context)
        print(json.dumps(to_plain(seen)) if asked.json else "\n".join(lines(check, seen)), flush=True)
    finally:
        other.close()
        if not asked.keep:
            here.remove_all()
        here.close()
    return exit_code(seen)


def make(check: Check, context: ObjectContext) -> Observation:
    """Make a check and return what it saw; a request that is not answered, or refused without need, is an anomaly."""
    module, function = check.code.split(":")
    findings = Findings(unit=check.unit)
    try:
        getattr(importlib.import_module(f"pytest_ckpt.conformance.objects.checks.{module}"), function)(
            context, findings
        )
    except NotRun as reason:
        return findings.observation(check.requirement, check.subject, not_run=str(reason))
    except OSError as error:
        findings.wrong(
            "a request failed",
            where=str(error.filename or context.here.url("")),
            seen=error.strerror or str(error),
            expected="no error",
        )
    return findings.observation(check.requirement, check.subject)


def _parser() -> argparse.ArgumentParser:
    names = sorted(check.name for check in in_room("objects"))
    parser = argparse.ArgumentParser(
        prog="python -m pytest_ckpt.conformance.objects", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("check", choices=names, metavar="CHECK", help=", ".join(names))
    parser.add_argument(
        "--target",
        required=True,
        help="s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX; the check works in a new one below",
    )
    parser.add_argument(
        "--endpoint", default="", help="URL of the store; of several, the second client takes the second"
    )
    parser.add_argument("--ca-bundle", default="", help="certificates of the endpoint's authority")
    parser.add_argument("--embedded", action="store_true", help="the endpoint is a server that a run itself started")
    parser.add_argument("--share", type=float, default=1.0, help="part of the full effort")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=30.0, help="seconds for which the store may be silent")
    parser.add_argument("--keep", action="store_true", help="leave the check's objects in the bucket")
    parser.add_argument("--json", action="store_true", help="print the observation as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
