"""The document of the rules that published results meet or break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_ckpt import __version__
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.grading.grading import EXIT_FAILED, EXIT_INCOMPLETE
from pytest_ckpt.published.judge import Found, inside, plain_message, refuse_nothing
from pytest_ckpt.published.rules import EDITION, SOURCE, rules_found

SCHEMA = "pytest-ckpt/rules/1"


def judge_rules(folder: Path, found: Found) -> dict[str, Any]:
    """Return which rules of a submission each result meets or breaks, as a document.

    Raises UsageError when there is nothing to judge.
    """
    refuse_nothing(folder, found)
    held = [(result, rules_found(result)) for result in found.results]
    outcomes = {rule.outcome for _, rules in held for rule in rules}
    exit_code = EXIT_FAILED if "broken" in outcomes else EXIT_INCOMPLETE if "not told" in outcomes else 0
    return {
        "schema": SCHEMA,
        "version": __version__,
        "edition": EDITION,
        "source": SOURCE,
        "tree": str(folder),
        "results": [
            {
                "system": result.system,
                "subject": str(result.measurement.subject),
                "division": result.runs[0].files.place.division,
                "runs": [inside(run.folder, folder) for run in result.runs],
                "rules": [to_plain(rule) for rule in rules],
            }
            for result, rules in held
        ],
        "messages": [plain_message(m, folder) for r in found.results for m in r.messages]
        + [plain_message(m, folder) for m in found.messages],
        "runs": found.run_count,
        "passed_over": found.training_count,
        "exit_code": exit_code,
    }
