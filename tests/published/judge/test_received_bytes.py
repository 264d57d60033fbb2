"""``pytest-ckpt judge`` on published results that count the bytes that network interfaces received during loads."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from pytest_ckpt.published.traffic import counters_of, dropped_between, received_between
from tests.support.published_documents import messages_by_path, outcomes, reason_for
from tests.support.synthetic_results import BYTES, SyntheticRun, published

LOADED = 10 * BYTES["llama3-8b", 8]


def cached(kind, number, _rank):
    """Return the seconds of an operation. From load 6 on, a load takes a third of the time of earlier loads."""
    return 5.0 if kind == "save" else (9.0 if number < 6 else 3.0)


@pytest.fixture
def network(judge, tmp_path):
    """Return a function that writes a published result, judges it, and returns the document."""

    def judged(*parts, **fields):
        return judge(SyntheticRun(**fields).write(tmp_path / "run", parts=("summary", "config", "metadata", *parts)))[1]

    return judged


@pytest.mark.parametrize("zone", [0.0, 2.0, -8.0, 5.75])
def test_the_series_shows_that_loads_crossed_the_network_in_any_time_zone(network, zone):
    found = network("series", zone_hours=zone)["published"]["network"]
    assert found["received_bytes"] == pytest.approx(LOADED, rel=1e-9)
    assert (found["loaded_bytes"], found["at_least"], found["crossed"]) == (LOADED, False, True)
    assert found["description"] == (
        "During the loads the hosts' network interfaces received 1.12 TB, 100 % of the loaded bytes: the loads "
        "crossed the network."
    )


def test_the_snapshots_of_an_invocation_that_only_loads_are_enough(judge, tmp_path):
    SyntheticRun(loads=0).write(published(tmp_path, "M", "a", "llama3-8b", "1"), parts=("metadata",))
    read = SyntheticRun(saves=0, started=SyntheticRun().started + timedelta(hours=1))
    read.write(published(tmp_path, "M", "a", "llama3-8b", "2"), parts=("metadata", "snapshots"))
    document = judge(tmp_path)[1]
    # Only one of eth0, its virtual function and the bond on it is counted.
    assert document["published"]["network"]["received_bytes"] == pytest.approx(LOADED, rel=1e-9)
    assert "the loads crossed the network." in reason_for(document, "COLD")


def test_loads_that_crossed_the_network_are_no_cached_reads_whatever_their_times(network, lines, tmp_path):
    assert network(seconds=cached)["published"]["signs"]
    document = network("series", seconds=cached)
    assert document["published"]["signs"] == []
    assert "may have come from a cache" not in reason_for(document, "REPEAT")
    # The times of the loads still vary.
    assert outcomes(document)["REPEAT"] == "failed"
    assert "the loads crossed the network." in lines(tmp_path / "run")


@pytest.mark.parametrize("share", [0.0, 0.4, 0.94])
def test_fewer_bytes_prove_nothing_and_are_reported(network, share):
    document = network("series", seconds=cached, received=share)
    found = document["published"]["network"]
    assert not found["crossed"]
    assert found["description"].endswith(
        "Caches and disks of the hosts are not in these counters, nor are RDMA adapters."
    )
    assert document["published"]["signs"]
    assert outcomes(document)["COLD"] == "not run"


def test_a_series_that_ends_before_the_loads_gives_a_lower_bound(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run", parts=("config", "metadata", "series"))
    (file,) = directory.glob("*_timeseries.json")
    series = json.loads(file.read_text())
    samples = series["samples_by_host"]["10.0.0.1"]
    del samples[-6:]
    file.write_text(json.dumps(series))
    found = judge(directory)[1]["published"]["network"]
    assert (found["at_least"], found["crossed"]) == (True, False)
    assert "received at least" in found["description"]
    assert ", at the last sample before they ended." in found["description"]


@pytest.mark.parametrize("change", [
    lambda series: series["samples_by_host"]["10.0.0.1"][-1]["netdev"][0].update(rx_bytes=5),
    lambda series: series["samples_by_host"]["10.0.0.1"].clear(),
    lambda series: series.update(samples_by_host=[]),
    lambda series: [s.update(timestamp="later") for s in series["samples_by_host"]["10.0.0.1"]],
    lambda series: [s.update(netdev=[{"interface_name": "ib0.8001", "rx_bytes": 9}])
                    for s in series["samples_by_host"]["10.0.0.1"]],
])  # fmt: skip
def test_counters_that_went_back_or_are_missing_show_nothing(judge, tmp_path, change):
    directory = SyntheticRun().write(tmp_path / "run", parts=("config", "metadata", "series"))
    (file,) = directory.glob("*_timeseries.json")
    series = json.loads(file.read_text())
    change(series)
    file.write_text(json.dumps(series))
    document = judge(directory)[1]
    assert document["published"]["network"] is None
    assert "network interfaces" not in reason_for(document, "COLD")


def test_counters_of_one_of_two_hosts_show_nothing():
    samples = counters_of(None, SyntheticRun().series())
    assert received_between(samples, 200.0, 210.0, 0.0, 1) is None
    (of_host,) = samples.values()
    first, last = of_host[0].at, of_host[-1].at
    assert received_between(samples, first, last, first, 1) is not None
    assert received_between(samples, first, last, first, 2) is None


def test_a_series_that_is_no_json_is_a_message(judge, tmp_path):
    directory = SyntheticRun().write(tmp_path / "run", parts=("config", "metadata", "series"))
    (file,) = directory.glob("*_timeseries.json")
    file.write_text("{")
    document = judge(directory)[1]
    (text,) = (text for path, text in messages_by_path(document).items() if path.endswith(file.name))
    assert text.startswith("received bytes were not read: it is not JSON")
    assert outcomes(document)["SAVE"] == "met"


def test_caches_dropped_between_two_invocations_are_reported(judge, tmp_path):
    parts = ("metadata", "series")
    SyntheticRun(loads=0, dropped=1).write(published(tmp_path, "M", "a", "llama3-8b", "1"), parts=parts)
    later = SyntheticRun().started + timedelta(hours=1)
    SyntheticRun(saves=0, started=later, dropped=2).write(published(tmp_path, "M", "a", "llama3-8b", "2"), parts=parts)
    assert "each host's kernel dropped its page cache in between" in reason_for(judge(tmp_path)[1], "COLD")


def test_another_host_that_loads_has_no_count_to_compare_with():
    one = counters_of(None, SyntheticRun(dropped=1).series())
    other = {"client-2": next(iter(counters_of(None, SyntheticRun(dropped=5).series()).values()))}
    assert dropped_between(one, other) is None
    assert dropped_between(one, {}) is None
    assert dropped_between(one, one) is False
