"""The result of a test, attached to the test's pytest report for the controller: the verdict and the judged seconds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.measurement import OperationKind
from pytest_ckpt.facts.verdict import Verdict

if TYPE_CHECKING:
    import pytest

# The name of the report attribute; its value is text, which xdist can transfer.
_ATTRIBUTE = "pytest_ckpt"


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectTimes:
    """The seconds of each save, or of each load, of a subject. ``bytes`` is the number of bytes of one operation."""

    subject: str
    kind: OperationKind
    seconds: tuple[float, ...]
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TestResult:
    """The result of one test. ``timed`` is None if no times were judged.

    After an internal error, ``crash`` is a sentence on the error, and ``verdict`` is None.
    """

    verdict: Verdict | None = None
    timed: SubjectTimes | None = None
    crash: str = ""


def hang(carried: TestResult, report: pytest.TestReport) -> None:
    """Attach a test's result to its pytest report."""
    setattr(report, _ATTRIBUTE, json.dumps(to_plain(carried)))


def carried_by(report: pytest.TestReport) -> TestResult | None:
    """Return the test result attached to a pytest report; None if no result is attached."""
    text = getattr(report, _ATTRIBUTE, None)
    return from_plain(TestResult, json.loads(text)) if text and report.when == "call" else None
