"""Files that name themselves patterns of a job: what is wrong is said in a sentence; some were found by the fuzzers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ckpt.config.pattern_files import load_pattern
from pytest_ckpt.support.errors import UsageError


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"form": \xad1}', "it is not UTF-8: invalid start byte at byte 9"),
        (b"\xff\xfe{\0", "it is not UTF-8"),
        (b"", "."),
        (b"[" * 100_000, "."),
    ],
)
def test_what_is_no_pattern_is_refused_with_a_sentence(data: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "pattern.json"
    file.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        load_pattern(str(file), "show")
    assert says in refused.value.what
    assert "codec" not in refused.value.what
    assert refused.value.what.startswith(f"show {file}: ")
