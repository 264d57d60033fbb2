"""``pytest-ckpt schema NAME``: the JSON schema of a document."""

from __future__ import annotations

import argparse
import json

HELP = "print the JSON schema of a document"
DESCRIPTION = (
    "Print the JSON schema (draft 2020-12) of report.json, of a line of history.jsonl, or of the output of a command "
    "with --json."
)
NAMES = ("report", "history", "trend", "diff", "verify", "doctor", "published", "rules")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("name", choices=NAMES, help="the document")


def run(args: argparse.Namespace) -> int:
    """Print the schema. Return 0."""
    from pytest_ckpt.cli.documents import DOCUMENTS  # noqa: PLC0415
    from pytest_ckpt.facts.written import schema_of  # noqa: PLC0415

    print(json.dumps(schema_of(DOCUMENTS[args.name]), indent=1))
    return 0
