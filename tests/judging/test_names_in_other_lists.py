"""The catalogue states the names that a requirement has in other requirement lists, such as NVIDIA's list."""

from __future__ import annotations

import re

from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.grading.catalogue import REQUIREMENTS, row


def test_names_in_other_lists_appear_in_the_catalogue() -> None:
    assert row(REQUIREMENTS["SAVE"]).also_known_as == ("NVIDIA HSS02",)
    assert row(REQUIREMENTS["INTEGRITY"]).also_known_as == ()


def test_a_line_of_another_list_is_named_with_whose_it_is_and_no_survey_of_ours_is_cited() -> None:
    """If a text cites an entry of another list, such as ``N-011``, the text also names the owner of the list.

    No text cites the project's internal survey, because readers of a certificate do not have this survey.
    """
    printed = [text for r in REQUIREMENTS.values() for text in (r.text, r.source, r.figure, r.limit, r.next_step)]
    printed += [text for check in CHECKS for text in (check.how, check.relies)]
    printed += [name for r in REQUIREMENTS.values() for name in r.also_known_as]
    cited = [text for text in printed if re.search(r"\bN-\d|\bHSS\d", text)]
    assert cited
    assert [text for text in cited if "NVIDIA" not in text] == []
    assert [text for text in printed if re.search(r"semantics \d|survey", text)] == []
