"""Verdicts on saves that pass through a compression codec."""

from __future__ import annotations

import pytest

from tests.support.synthetic_measurement import judged, outcome
from tests.support.synthetic_training import compressed

pytestmark = pytest.mark.covers(requirements=("COMPRESSION",))


@pytest.mark.parametrize(("seconds", "expected"), [(5.0, "met"), (10.49, "met"), (10.51, "failed"), (30.0, "failed")])
def test_compressed_saves_may_be_a_little_slower_than_plain_ones(seconds, expected):
    assert outcome("COMPRESSION", compressed(*[seconds] * 3)) == expected


def test_a_ratio_is_never_reported_without_what_was_compressed():
    for found in (compressed(), compressed(*[30.0] * 3), compressed(fault_count=1)):
        assert "0.90 of content that is made to compress" in judged("COMPRESSION", found).because
        assert "a job's own data may compress more or less" in judged("COMPRESSION", found).because


def test_the_processor_is_named_only_where_the_codec_took_most_of_the_save():
    limit = "the client's processor is the limit"
    assert limit in judged("COMPRESSION", compressed(*[30.0] * 3, codec=(15.1,) * 3)).because
    assert limit not in judged("COMPRESSION", compressed(*[30.0] * 3, codec=(14.9,) * 3)).because


def test_wrong_bytes_are_worse_than_any_time():
    assert judged("COMPRESSION", compressed(fault_count=1)).reason == "wrong bytes"
