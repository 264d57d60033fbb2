"""Numbers and units as readers see them."""

from __future__ import annotations

import pytest

from pytest_ckpt.report.quantity import margin_text, quantities, quantity, rate_format, seconds_format, time_text


@pytest.mark.parametrize(
    ("margin", "text"),
    [(None, "–"), (0.583, "+58 %"), (0.0421, "+4.2 %"), (0, "+0 %"), (-0.0031, "−0.31 %"), (-1.0, "−100 %"),
     (-1.02, "2.02 × limit"), (0.9954, "+99.5 %"), (0.99999, "+99.9 %"), (1.0, "+100 %"), (-34.5, "35.5 × limit"),
     (-98.86, "99.9 × limit"), (-9885.7, "9,887 × limit")],
)  # fmt: skip
def test_margins(margin: float | None, text: str) -> None:
    assert margin_text(margin) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(None, "s", "–"), (27.83, "s", "27.8 s"), (0.0004, "fraction", "0.04 %"), (3.0, "faults", "3 faults"),
     (1.137, "slowest / median", "1.14 ×"), (112_425_623_552.0, "bytes", "112,425,623,552 bytes"), (16.0, "", "16"),
     (4.04e9, "B/s", "4.04 GB/s")],
)  # fmt: skip
def test_quantities(value: float | None, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


@pytest.mark.parametrize(
    ("measured", "limit", "unit", "texts"),
    [
        (1.0004, 1.0, "s", ("1.0004 s", "1 s")),
        (1.25001, 1.25, "during drains / without", ("1.25001 ×", "1.25000 ×")),
        (0.100004, 0.1, "fraction", ("10.0004 %", "10 %")),
        (12.5, None, "s", ("12.5 s", "–")),
        (3.0, 0.0, "faults", ("3 faults", "0 faults")),
        (2.0, 2.0, "faults", ("2 faults", "2 faults")),
        (1.2344, 1.2343, "files a second", ("1.2344 files a second", "1.2343 files a second")),
    ],
)
def test_a_limit_just_missed_is_distinguished_from_what_was_measured(
    measured: float, limit: float | None, unit: str, texts: tuple[str, str]
) -> None:
    assert quantities(measured, limit, unit) == texts


def test_columns_share_unit_and_decimals() -> None:
    write = seconds_format(12.34)
    assert [write(v) for v in (12.34, 9.0, 0.5, None)] == ["12.3 s", "9.0 s", "0.5 s", "–"]
    assert seconds_format(None)(None) == "–"
    assert seconds_format(0.0)(0.0) == "0 µs"
    assert rate_format(9.75e9)(980e6) == "0.98 GB/s"


def test_moments_keep_their_zone_and_odd_ones_their_text() -> None:
    assert time_text("2031-05-06T07:08:09+00:00") == "6 May 2031, 07:08 UTC"
    assert time_text("2031-05-06T07:08:09+02:00") == "6 May 2031, 07:08 UTC+02:00"
    assert time_text("last week") == "last week"
    assert time_text(None) == "–"
