"""Suggestions of similar known words for an unknown word."""

from __future__ import annotations

import pytest

from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.support.errors import nearest


@pytest.mark.parametrize(
    ("word", "offered"),
    [("70b", "llama3-70b"), ("405B", "llama3-405b"), ("llama-8b", "llama3-8b"), ("8", ""), ("zzz", "")],
)
def test_a_part_of_one_known_word_means_that_one(word: str, offered: str) -> None:
    assert nearest(word, MODELS) == (f" (did you mean '{offered}'?)" if offered else "")
