"""Pattern files are read back as they were written. A pattern that cannot be replayed is refused."""

from __future__ import annotations

import json

import pytest

from pytest_ckpt.facts.pattern import read_pattern
from tests.support.synthetic_job_patterns import ONE_FILE, PAUSED


def changed(**fields: object) -> str:
    return json.dumps(json.loads(ONE_FILE) | fields)


@pytest.mark.parametrize("text", [ONE_FILE, PAUSED])
def test_a_pattern_is_read_back_as_it_was_written(text: str) -> None:
    pattern = read_pattern(text)
    assert read_pattern(pattern.to_text()) == pattern


def test_the_pauses_of_a_thread_are_summed() -> None:
    assert read_pattern(ONE_FILE).pauses_us() == {}
    assert read_pattern(PAUSED).pauses_us() == {(0, 0): 60_000}


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("[]", "it is not a pattern"),
        (changed(form=2), "this version reads form 1"),
        (changed(ranks=10**9), "ranks are expected"),
        (changed(ranks=2), "rank 1 leaves no file"),
        (changed(files=[[0, 10**18, True]]), "whole numbers"),
        (changed(files=[[0, 1, True]] * 5000), "files and"),
        (changed(files=[["../x", 1, True]]), "whole numbers"),
        (changed(files=[[0, 200_000, True]]), "no write covers byte 100,000"),
        (changed(label="a\nb"), "printable"),
        (changed(steps=[[0, 0, 0, "unlink", 3, 0, 0, 1]]), "a file that is not there"),
        (changed(steps=[[0, 0, 0, "system", 0, 0, 0, 1]]), "is not a call"),
        (changed(steps=[[0, 0, 0, "write", 0, 0, 100_000, 1]]), "before its file is open"),
        (changed(steps=[[0, 0, 0, "create", 0, 0, 0, 1], [0, 0, 0, "write", 0, 0, 100_000, 9]]), "beyond the end"),
        (changed(steps=[[0, 9, 0, "create", 0, 0, 0, 1]]), "rank or lane"),
        (changed(steps=[[0, 0, 0, "fsync directory", -1, 0, 0, 10**12]]), "come in runs"),
        (changed(steps=[[0, 0, 0, "syncfs", -1, 0, 0, 10**12]]), "come in runs"),
        (changed(files=[[0, 100_000, True, "O_TRUNC"]]), "not a flag of a synchronous file"),
        (changed(steps=[[0, 0, 0]]), "a row has 8 values"),
        (changed(steps=[[0, 0, 0, "create", 0, 0, 0, 1, 10**13]]), "pauses for more than an hour"),
        ("[" * 5000, "too deep"),
    ],
)
def test_an_unreplayable_pattern_is_refused(text: str, expected_text: str) -> None:
    with pytest.raises(ValueError, match=expected_text):
        read_pattern(text)
