"""Generates the table in docs/model_arrays.md from the table of arrays and recorded runs. Run it with ``python -m``."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support import CHECKOUT
from tests.support.docs_pages import replace_section
from tests.support.model_arrays import ARRAYS, Array, recorded

PAGE = CHECKOUT / "docs" / "model_arrays.md"


def with_results(page: str) -> str:
    """Return the page with the generated table between its marks."""
    seen = recorded()
    lines = ["| array | truth | good | expected | observed | date |", "|---|---|---|---|---|---|"]
    lines += [_row(array, seen.get(array.name, {})) for array in ARRAYS]
    return replace_section(page, "the tests", "\n".join(lines) + "\n")


def _row(array: Array, found: Mapping[str, object]) -> str:
    seen = found.get("seen")
    shown = _outcomes(seen, str(found["says"])) if isinstance(seen, dict) else "not run"
    cells = [
        array.name,
        array.truth,
        "yes" if array.is_good else "no",
        _outcomes(array.expected, array.expected_text),
        shown,
        str(found.get("date", "")),
    ]
    return f"| {' | '.join(cells)} |"


def _outcomes(outcomes: Mapping[str, str], expected_text: str) -> str:
    """Return the outcomes other than "met" as text. If there are none, the text is "all met".

    If ``expected_text`` is given, the text ends with these words of the certificate.
    """
    others = [f"{name} {outcome}" for name, outcome in outcomes.items() if outcome != "met"]
    text = ", ".join(others) or "all met"
    return f'{text}; certificate: "{expected_text}"' if expected_text else text


if __name__ == "__main__":
    PAGE.write_text(with_results(PAGE.read_text()))
