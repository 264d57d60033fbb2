"""Invalid pattern files (recorded file calls of jobs): each mistake gives a clear message.

The fuzzers found some of these files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.config.pattern_files import load_pattern, shipped_path
from pytest_ckpt.support.errors import UsageError
from tests.support.fuzz.families import python_jargon


@pytest.mark.parametrize(
    ("data", "expected_text"),
    [
        (b'{"form": \xad1}', "it is not UTF-8: invalid start byte at byte 9"),
        (b"\xff\xfe{\0", "it is not UTF-8"),
        (b"", "."),
        (b"[" * 100_000, "."),
    ],
)
def test_an_invalid_pattern_is_refused_with_a_sentence(data: bytes, expected_text: str, tmp_path: Path) -> None:
    file = tmp_path / "pattern.json"
    file.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        load_pattern(str(file), "show")
    assert expected_text in refused.value.what
    assert "codec" not in refused.value.what
    assert refused.value.what.startswith(f"show {file}: ")


def refusal(file: Path) -> str:
    try:
        load_pattern(str(file), "show")
    except UsageError as refused:
        return refused.what
    return ""


@pytest.mark.parametrize("value", [{}, None, [], "x", 1.5, 0, {"a": 1}, [1]], ids=repr)
@pytest.mark.parametrize("name", ["ranks", "omitted", "files", "steps", "label", "read_bytes"])
def test_a_value_of_another_kind_is_refused_in_words_of_no_program(name: str, value: Any, tmp_path: Path) -> None:
    document = json.loads(shipped_path("torch-save").read_text())
    file = tmp_path / "pattern.json"
    for changed in ({**document, name: value}, {**document, "steps": [[*document["steps"][0][:-1], value]]}):
        file.write_text(json.dumps(changed))
        found = refusal(file)
        assert python_jargon(found) == []
        assert not any(word in found for word in ("object", "must be", "instances of"))
