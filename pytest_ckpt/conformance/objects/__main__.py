"""``python -m pytest_ckpt.conformance.objects CHECK --target=s3://…``: run one check and print its observation."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys

from pytest_ckpt.conformance.client import SAFE_PATH, Client
from pytest_ckpt.conformance.context import Findings
from pytest_ckpt.conformance.objects.session import ObjectContext, Session, SessionSpec
from pytest_ckpt.conformance.process import CallReporter, exit_code, observe, parser_of, run, show
from pytest_ckpt.facts.checks import BY_NAME, Check
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.keys import read_url

AGENT = "pytest_ckpt.conformance.objects.agent"
# The limit for one request to an agent, which may be a race or the upload of many objects.
_REQUEST_SECONDS = 300.0


def main() -> int:
    """Perform the check. Return 0 without an anomaly, 1 with an anomaly, 8 if a prerequisite is missing."""
    args = _parser().parse_args()
    check, report_call = BY_NAME[args.check], CallReporter()
    place = read_url(args.target)
    access = Access(
        endpoints=tuple(filter(None, args.endpoint.split(","))),
        ca_bundle=args.ca_bundle,
        embedded="by hand" if args.embedded else "",
    )
    first = SessionSpec(
        bucket=place.bucket,
        prefix=f"{place.below}{check.name}-{os.getpid()}",
        access=access,
        seed=args.seed,
        patience_seconds=args.patience,
        scheme=place.scheme,
    )
    here = Session(first, report_call)

    def client(name: str) -> Client:
        words = dataclasses.replace(first, access=access.of_client(1))
        command = (sys.executable, *SAFE_PATH, "-m", AGENT, json.dumps(to_plain(words)))
        return Client(command, name=name, patience=_REQUEST_SECONDS, report_call=report_call)

    other = client("the second client")
    context = ObjectContext(
        here=here, other=other, third=lambda: client("a third client"), seed=args.seed, share=args.share
    )
    try:
        seen = make(check, context)
        show(check, seen, as_json=args.json)
    finally:
        other.close()
        if not args.keep:
            here.remove_all()
        here.close()
    return exit_code(seen)


def make(check: Check, context: ObjectContext) -> Observation:
    """Perform a check and return its observation. Missing answers and refusals of valid requests are anomalies."""
    findings = Findings(unit=check.unit)

    def failed(error: OSError) -> str:
        where = str(error.filename or context.here.url(""))
        findings.wrong("a request failed", where=where, seen=error.strerror or str(error), expected="no error")
        return ""

    return observe(check, context, findings, failed)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("objects", "pytest_ckpt.conformance.objects", __doc__)
    parser.add_argument(
        "--target",
        required=True,
        help="s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX; the check works in a new prefix below",
    )
    parser.add_argument(
        "--endpoint", default="", help="URL of the store; if there are several, the second client uses the second"
    )
    parser.add_argument("--ca-bundle", default="", help="certificates of the endpoint's authority")
    parser.add_argument("--embedded", action="store_true", help="the endpoint is a server that a run itself started")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds for which the store may be silent")
    parser.add_argument("--keep", action="store_true", help="leave the check's objects in the bucket")
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
