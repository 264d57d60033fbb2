"""Units in typed values and in displayed values."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.support import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("28s", 28.0),
        ("9.3min", 558.0),
        ("50000h", 180_000_000.0),
        ("4h", 14_400.0),
        ("2d", 172_800.0),
        ("500ms", 0.5),
        ("100us", 1e-4),
        ("30", 30.0),
        (".5", 0.5),
        ("1e3s", 1000.0),
        (" 4 hours ", 14_400.0),
        ("90 Sec", 90.0),
        ("0s", 0.0),
    ],
)
def test_durations_mean_their_units(text: str, seconds: float):
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["5m", "5M", "5 m"])
def test_an_ambiguous_m_is_refused_and_min_is_offered(text: str):
    with pytest.raises(ValueError, match="use 'min'"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "fraction"),
    [("5%", 0.05), ("0.05", 0.05), ("1/1000", 0.001), ("0.35 %", 0.0035), ("1", 1.0), ("100%", 1.0), ("0", 0.0)],
)
def test_fractions_are_exact(text: str, fraction: float):
    assert units.parse_fraction(text) == fraction


def test_a_forgotten_percent_sign_is_pointed_out():
    with pytest.raises(ValueError, match=re.escape("for percent write 5%")):
        units.parse_fraction("5")


@pytest.mark.parametrize("text", ["101%", "3/2", "1/0", "5s", "1/2%"])
def test_an_invalid_share_is_refused(text: str):
    with pytest.raises(ValueError, match="a share from 0 to 1"):
        units.parse_fraction(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("105GiB", 105 * 2**30),
        ("64MB", 64_000_000),
        ("4096", 4096),
        ("4096B", 4096),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("1.5 TiB", 3 * 2**39),
        ("15PB", 15 * 10**15),
        ("2E", 2 * 10**18),
        ("64M", 64_000_000),
        ("64Mi", 64 * 2**20),
        ("0.1GB", 100_000_000),
    ],
)
def test_sizes_mean_their_letters(text: str, count: int):
    parsed = units.parse_size(text)
    assert parsed == count
    assert type(parsed) is int


@pytest.mark.parametrize(("text", "hint"), [("105gib", "write GiB"), ("64Mb", "write MB"), ("5GBs", "'GBs'")])
def test_wrong_letters_of_a_size_are_named(text: str, hint: str):
    with pytest.raises(ValueError, match=hint):
        units.parse_size(text)


@pytest.mark.parametrize("parse", [units.parse_duration, units.parse_fraction, units.parse_size])
@pytest.mark.parametrize(
    "text", ["", " ", "-1", "-5s", "nan", "inf", "1e999", "fast", "5 5", "1,000", "0x10", "½", "٣"]
)
def test_nonsense_is_refused_with_what_is_accepted(parse, text: str):
    with pytest.raises(ValueError, match="expected"):
        parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (28, "28 s"),
        (27.8425, "27.8 s"),
        (4.4548, "4.45 s"),
        (0.012, "12 ms"),
        (0.9999, "1 s"),
        (2.5e-5, "25 µs"),
        (119.4, "119 s"),
        (119.96, "2 min"),
        (558, "9.3 min"),
        (11_136, "3.09 h"),
        (180_000_000, "50,000 h"),
        (0, "0 s"),
        (-3.5, "-3.5 s"),
        (math.inf, "inf s"),
    ],
)
def test_seconds_for_people(seconds: float, text: str):
    assert units.format_seconds(seconds) == text


def test_more_digits_on_request():
    assert units.format_seconds(27.8425, digits=5) == "27.843 s"
    assert units.format_binary_bytes(112_425_623_552, digits=6) == "104.705 GiB"


@pytest.mark.parametrize(
    ("count", "binary", "decimal"),
    [
        (0, "0 B", "0 B"),
        (512, "512 B", "512 B"),
        (1000, "1,000 B", "1 kB"),
        (1024, "1 KiB", "1.02 kB"),
        (64 << 20, "64 MiB", "67.1 MB"),
        (112_425_623_552, "105 GiB", "112 GB"),
        (5_682_508_791_808, "5,292 GiB", "5.68 TB"),
        (14_505_000_000_000_000, "13,508,834 GiB", "14.5 PB"),
        (2**20 - 1, "1 MiB", "1.05 MB"),
        (2**20 - 4000, "1,020 KiB", "1.04 MB"),
        (999_999, "977 KiB", "1 MB"),
    ],
)
def test_bytes_carry_the_right_letters(count: int, binary: str, decimal: str):
    assert units.format_binary_bytes(count) == binary
    assert units.format_bytes(count) == decimal


@pytest.mark.parametrize(("rate", "text"), [(273e9, "273 GB/s"), (1.638e12, "1.64 TB/s"), (533e6, "533 MB/s")])
def test_rates_are_decimal(rate: float, text: str):
    assert units.format_rate(rate) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.05, "5 %"), (0.0035, "0.35 %"), (0.00347, "0.347 %"), (-0.57, "-57 %"), (0, "0 %"), (1, "100 %")],
)
def test_percentages(fraction: float, text: str):
    assert units.format_percent(fraction) == text


def test_counts_have_their_thousands_separated():
    assert units.format_count(1234) == "1,234"
    assert units.format_count(-16_000) == "-16,000"


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (0, ("rank",), "0 ranks"),
        (1, ("rank",), "1 rank"),
        (2, ("rank",), "2 ranks"),
        (1024, ("rank",), "1,024 ranks"),
        (1, ("process", "processes"), "1 process"),
        (3, ("process", "processes"), "3 processes"),
        (1, ("bit differs", "bits differ"), "1 bit differs"),
        (2, ("bit differs", "bits differ"), "2 bits differ"),
    ],
)
def test_a_noun_agrees_with_its_count(count: int, words: tuple[str, ...], text: str):
    assert units.counted(count, *words) == text


@given(st.floats(min_value=1e-6, max_value=1e12))
@settings(deadline=None)
def test_a_formatted_duration_is_near_what_it_was_made_from(seconds: float):
    shown = units.format_seconds(seconds).replace(",", "")
    assert units.parse_duration(shown) == pytest.approx(seconds, rel=0.0051)


@given(st.integers(min_value=1, max_value=10**18))
@settings(deadline=None)
def test_formatted_sizes_are_near_what_they_were_made_from(count: int):
    for text in (units.format_bytes(count), units.format_bytes(count)):
        # Three digits, and a byte that parsing rounds down.
        assert abs(units.parse_size(text.replace(",", "")) - count) <= 0.0051 * count + 1


@pytest.mark.parametrize(
    ("value", "limit", "texts"),
    [
        (1.0004, 1.0, ("1.0004 s", "1 s")),
        (1.0, 1.0, ("1 s", "1 s")),
        (0.5, 1.0, ("500 ms", "1 s")),
        (119.9999, 120.0, ("119.9999 s", "2 min")),
        (1.0 + 2**-52, 1.0, ("1.0000000000000002 s", "1 s")),
    ],
)
def test_a_value_and_its_limit_have_enough_digits_to_differ(value: float, limit: float, texts: tuple[str, str]) -> None:
    assert units.compared(value, limit) == texts


@given(st.floats(min_value=1e-5, max_value=1e9), st.floats(min_value=1e-5, max_value=1e9))
@settings(deadline=None)
def test_two_values_look_alike_only_where_they_are(value: float, limit: float) -> None:
    for write in (units.format_seconds, units.format_percent, units.format_rate, units.format_general):
        one, other = units.compared(value, limit, write)
        # Dividing by a unit may round the last of a float's digits away.
        assert one != other or value == pytest.approx(limit, rel=1e-15)


def test_a_ratio_is_distinguished_from_its_limit() -> None:
    ratios = ((1.0004, 1), (2, 1), (1, 1), (1.25001, 1.25), (0.9999, 1))
    assert [units.format_ratio(*pair) for pair in ratios] == ["1.0004", "2.00", "1.00", "1.25001", "0.9999"]


@given(st.integers(min_value=0, max_value=2**60))
@settings(deadline=None)
def test_a_bare_number_of_bytes_is_itself(count: int):
    assert units.parse_size(str(count)) == count


@given(st.text(max_size=12))
@settings(deadline=None)
def test_parsers_answer_or_raise_value_errors(text: str):
    for parse in (units.parse_duration, units.parse_fraction, units.parse_size):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert value >= 0
        assert math.isfinite(value)
