"""``pytest-ckpt verify``: check whether a run directory is unchanged since its run ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.cli.console import print_lines

if TYPE_CHECKING:
    import argparse

    from pytest_ckpt.evidence.verification import Examination, Signer

HELP = "check that a run directory was not changed and that its verdicts follow from its measurements"
DESCRIPTION = (
    "Check the digests of all files and the signature, judge the files again and write the certificate again. "
    "Exit code 0: UNCHANGED; 1: CHANGED, with the names of files and verdicts that differ; 8: the run wrote no report."
)
SCHEMA = "pytest-ckpt/verify/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("directory", metavar="DIRECTORY", help="the directory of a run, such as ckpt-report")
    parser.add_argument(
        "--key",
        metavar="PUB",
        action="append",
        default=[],
        help="a signer's public key (Ed25519, PEM); may be given several times: the signature must be made with one of "
        "them",
    )
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the result of each check, and return the exit code.

    The exit code is 0 for an unchanged directory, 1 for a changed directory, and 8 if the run wrote no report.
    """
    from pytest_ckpt.evidence.signing import read_public_key  # noqa: PLC0415
    from pytest_ckpt.evidence.unfinished import is_unfinished  # noqa: PLC0415
    from pytest_ckpt.evidence.verification import (  # noqa: PLC0415
        KnownKey,
        signers,
        verify_directory,
    )
    from pytest_ckpt.facts.codec import to_plain  # noqa: PLC0415
    from pytest_ckpt.grading.grading import EXIT_INCOMPLETE  # noqa: PLC0415

    known = [KnownKey(name=name, key=read_public_key(Path(name), option="--key")) for name in args.key]
    keys = [one.key for one in known]
    directory = Path(args.directory)
    checks = verify_directory(directory, keys)
    found = signers({str(directory): directory}, known)
    is_broken = any(c.outcome == "broken" for c in checks)
    unfinished = is_unfinished(directory)
    if args.json:
        outcome = "changed" if is_broken else "incomplete" if unfinished else "unchanged"
        document = {"schema": SCHEMA, "outcome": outcome, "checks": to_plain(checks), "signers": to_plain(found)}
        print(json.dumps(document, indent=1))
    else:
        print_lines(_lines(checks, found, is_broken=is_broken, unfinished=unfinished))
    return 1 if is_broken else EXIT_INCOMPLETE if unfinished else 0


def _lines(
    checks: tuple[Examination, ...], found: tuple[Signer, ...], *, is_broken: bool, unfinished: bool
) -> list[str]:
    lines = []
    width = max(10, *(len(check.name) for check in checks))
    for check in checks:
        lines.append(f"{check.name:<{width}} {check.outcome:<12} {check.description}")
        lines += [f"{'':<{width + 14}}{detail}" for detail in check.details]
    for signer in found:
        signed = f"signature in {', '.join(signer.signed)}" if signer.signed else "no signature here"
        which = f"{signer.key}: {signed}" if signer.key else f"{signed}, self-declared"
        name, outcome = "signer", "known" if signer.key else "not known"
        lines.append(f"{name:<{width}} {outcome:<12} {which}; SHA-256 of the key {signer.key_id}")
    unchecked = [c.name for c in checks if c.outcome == "not checked"]
    if is_broken:
        lines.append("CHANGED: this directory is not as its run left it")
    elif unfinished:
        lines.append("INCOMPLETE: the run wrote no report, so it is not known whether the directory was changed")
    elif any(c.name == "signature" and c.outcome == "holds" for c in checks):
        # The signed manifest lists the pages, so they are verified even if they cannot be written again.
        lines.append("UNCHANGED since it was signed")
    else:
        lines.append(f"UNCHANGED; {' and '.join(unchecked)} not checked")
    return lines
