"""The sentences of each requirement's verdicts equal a golden text.

``CKPT_UPDATE_GOLDEN=1 pytest tests/judging/test_golden_texts.py`` rewrites the golden texts. After this command, read
the differences.
"""

from __future__ import annotations

import dataclasses
import os
import re
import textwrap
from pathlib import Path

import pytest

from pytest_ckpt.facts.failure import BlockedCall
from pytest_ckpt.facts.observation import Anomaly, Observation
from pytest_ckpt.facts.verdict import REASONS
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.behaviour import without_anomaly
from tests.support.golden_cases import CASES_OF_SAVES_AND_LOADS
from tests.support.golden_cases_of_patterns import CASES_OF_PATTERNS
from tests.support.golden_cases_of_strategies import CASES_OF_STRATEGIES
from tests.support.synthetic_measurement import judged

CASES = CASES_OF_SAVES_AND_LOADS | CASES_OF_PATTERNS | CASES_OF_STRATEGIES
GOLDEN = Path(__file__).parent / "golden"

SEEN = Observation(requirement="STALE", subject="attributes", trials=1200, seconds=1.0, reproduce="python -m check")
ANOMALY = Anomaly(kind="old size", where="a, trial 3", seen="4,096", expected="8,192")
OBSERVATIONS = {
    "met without a figure": (SEEN, None),
    "met without a limit": (dataclasses.replace(SEEN, measured=0.5, unit="s"), None),
    "met": (dataclasses.replace(SEEN, measured=0.5, unit="s", facts={"clients": "2"}), 1.0),
    "too slow": (dataclasses.replace(SEEN, measured=1.5, unit="s"), 1.0),
    "one anomaly": (dataclasses.replace(SEEN, anomaly_count=1, anomalies=(ANOMALY,)), 1.0),
    "many anomalies": (dataclasses.replace(SEEN, anomaly_count=1200, anomalies=(ANOMALY,) * 2), 1.0),
    "not run": (dataclasses.replace(SEEN, not_run="the check itself broke: exit code 1\nTraceback"), 1.0),
    "one trial": (dataclasses.replace(SEEN, trials=1), None),
    "no trial": (dataclasses.replace(SEEN, trials=0), None),
    "blocked": (dataclasses.replace(SEEN, blocked=BlockedCall(
        call="mkdir", path="/mnt/a/b", host="n1", message="no progress for 300 s", stack="state D\nin nfs_wait")), 1.0),
}  # fmt: skip


def text_of(name, decided):
    """Return a verdict as text: outcome, reason code, values, sentences."""
    detail = decided.detail.splitlines() if isinstance(decided.detail, str) else decided.detail
    figures = f"measured {decided.measured!r:.12} limit {decided.limit!r:.12} {decided.unit}".rstrip()
    lines = [f"== {name}: {decided.outcome}, {decided.reason}", figures, *textwrap.wrap(decided.because, 116)]
    return "\n".join([*lines, *(f"  {line}" for line in detail)]) + "\n"


def hold(name, text):
    """Check that the text of a requirement equals its golden text.

    If CKPT_UPDATE_GOLDEN is set, rewrite the golden text first.
    """
    file = GOLDEN / f"{name.lower()}.txt"
    if os.environ.get("CKPT_UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), f"{file}: see the first lines of this test"


# The number one before a plural noun.
OF_ONE = re.compile(
    r"(?<![\d.,])1 (other |more |faulty |loaded )?(accelerators|bits|bursts|bytes|checkpoints|checks|commits|faults"
    r"|files|directories|loads|operations|places|processes|ranks|reads|samples|saves|trials)\b"
)


def test_a_single_item_is_reported_in_the_singular():
    assert OF_ONE.search("1 faulty places")
    assert not OF_ONE.search("1.1 saves, 21 files, 1 file, 2,001 loads")
    for file in GOLDEN.glob("*"):
        assert not OF_ONE.search(file.read_text()), file.name


def test_every_judge_has_a_golden_text():
    assert set(CASES) == {name for name, r in REQUIREMENTS.items() if r.is_measured}
    assert {file.stem for file in GOLDEN.glob("*")} == {name.lower() for name in (*CASES, "behaviour")}


@pytest.mark.parametrize("requirement", [
    pytest.param(name, marks=pytest.mark.covers(requirements=(name,))) for name in CASES
])  # fmt: skip
def test_the_sentences_of_a_judge(requirement):
    verdicts = {name: judged(requirement, of) for name, of in CASES[requirement].items()}
    for name, verdict in verdicts.items():
        assert (verdict.outcome == "met") == (verdict.reason == "met"), name
        assert verdict.reason in REASONS, name
        assert verdict.reason != "plugin", name
        assert verdict.because.endswith("."), name
    hold(requirement, "\n".join(text_of(name, verdict) for name, verdict in verdicts.items()))


def test_the_sentences_of_the_judge_of_behaviour():
    hold("behaviour", "\n".join(text_of(name, without_anomaly(*of)) for name, of in OBSERVATIONS.items()))
