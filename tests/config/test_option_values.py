"""The valid values of each option, and the message for an invalid value."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.cli.main import main
from pytest_ckpt.config import parsers
from pytest_ckpt.config.engines import check_codec_installed, check_installed, known_engines
from pytest_ckpt.config.options import command_line_of, resolve
from pytest_ckpt.facts.engines import BUILT_IN, EngineSpec, MemoryRule
from pytest_ckpt.facts.options import OPTIONS, option_of
from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.support.errors import UsageError
from tests.support.option_examples import KEYS, VALUES, as_options, settings_of
from tests.support.selection import examples

# --- valid values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "texts", "value"),
    [
        ("cluster", ["16000", "16,000", "16_000", " 16000 "], 16_000),
        ("save_budget", ["3%", "0.03", "3/100", "3 %"], 0.03),
        ("load_budget", ["0.5%", "5e-3", "1/200"], 0.005),
        ("io_timeout", ["90", "90s", "1.5min", "90 seconds", "90000ms", "0.025h"], 90.0),
        ("scale", ["1%", "0.01", "1/100"], 0.01),
        ("seed", ["255", "0xff", "0b11111111"], 255),
        ("model", ["llama3-8b,llama3-70b", "llama3-70b, llama3-8b", "llama3-8b,,llama3-70b,llama3-8b"],
         (MODELS["llama3-8b"], MODELS["llama3-70b"])),
        ("model", ["all", " all "], tuple(MODELS.values())),
        ("hosts", ["n1:8,n2", "n1:8, n2:1", "n1:8,n2:"],
         (HostSlots(name="n1", slots=8), HostSlots(name="n2", slots=1))),
        ("hosts", ["localhost"], ()),
        ("keep_files", ["on", "true", "True"], True),
        ("keep_files", ["off", "false"], False),
    ],
)  # fmt: skip
def test_ways_to_write_the_same(key, texts, value):
    field = VALUES[key][1]
    assert [getattr(settings_of({key: text}), field) for text in texts] == [value] * len(texts)


def test_hosts_come_from_a_file_of_open_mpi_or_slurm(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# the rack\nn1 slots=4\nn2:2   # old\n\nn3\n")
    assert [(h.name, h.slots) for h in settings_of({"hosts": f"@{file}"}).hosts] == [("n1", 4), ("n2", 2), ("n3", 1)]


def test_the_number_of_ranks_is_the_sum_of_the_slots_unless_given():
    assert settings_of({"hosts": "n1:4,n2:2"}).ranks == 6
    assert settings_of({"hosts": "n1:4,n2:2", "ranks": "3"}).ranks == 3


def test_scale_and_operations_take_the_place_of_the_profile_s():
    of = settings_of({"profile": "smoke", "scale": "1/8"})
    assert (of.scale, of.operations) == (0.125, 3)
    of = settings_of({"profile": "smoke", "operations": "5"})
    assert (of.scale, of.operations) == (0.001, 5)


@pytest.mark.parametrize(
    ("profile", "text", "confidence", "share", "operations"),
    [
        ("acceptance", "95/95", 0.95, 0.95, 59),
        ("acceptance", " 95 % / 99% ", 0.95, 0.99, 299),
        ("smoke", "99/90", 0.99, 0.9, 44),
        ("smoke", "80/50", 0.8, 0.5, 3),
        ("acceptance", "80/50", 0.8, 0.5, 10),
        ("acceptance", "95/99:misses=0", 0.95, 0.99, 299),
        ("smoke", "95/99:misses=1", 0.95, 0.99, 473),
        ("acceptance", "95/95 : misses = 3", 0.95, 0.95, 153),
    ],
)
def test_a_confidence_plans_as_many_operations_as_show_it_and_no_fewer_than_the_profile(
    profile, text, confidence, share, operations
):
    of = settings_of({"profile": profile, "confidence": text})
    assert (of.assurance.confidence, of.assurance.share) == pytest.approx((confidence, share))
    assert of.operations == operations
    assert of.assurance.misses == int(text.replace(" ", "").partition("misses=")[2] or 0)


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("99", "confidence and share in percent are expected, such as 95/99"),
        ("95/99/1", "confidence and share in percent are expected"),
        ("0.95/1e1", "confidence and share in percent are expected"),
        ("49/99", "a confidence from 50 % to below 100 % is expected"),
        ("95/100", "a share from 50 % to below 100 % is expected"),
        ("95/99:", "misses=N is expected after the colon, such as 95/99:misses=1"),
        ("95/99:1", "misses=N is expected"),
        ("95/99:misses=-1", "misses=N is expected"),
        ("95/99:missed=1", "misses=N is expected"),
        ("95/99:misses=9999", "saves and loads would be needed, and a run has at most 4,093"),
        ("50/50:misses=1", "a plan with misses must show at least as much as 10 of 10 operations: this plan, with"),
        ("95/99.95", "5,990 saves and loads would be needed, and a run has at most 4,093"),
    ],
)
def test_a_confidence_that_no_run_shows_is_refused_with_what_is_expected(text, expected_text):
    with pytest.raises(UsageError) as refusal:
        settings_of({"confidence": text})
    assert expected_text in str(refusal.value)
    assert "such as 95/99" in refusal.value.remedy


def test_fewer_operations_than_a_confidence_needs_are_refused_and_more_are_run():
    with pytest.raises(UsageError, match="--ckpt-operations 58 with --ckpt-confidence: that confidence needs 59 saves"):
        settings_of({"confidence": "95/95", "operations": "58"})
    assert settings_of({"confidence": "95/95", "operations": "60"}).operations == 60
    with pytest.raises(UsageError, match="that confidence needs 93 saves"):
        settings_of({"confidence": "95/95:misses=1", "operations": "92"})


def test_no_more_checkpoints_are_kept_than_a_confidence_plans():
    assert settings_of({"confidence": "95/95", "keep_last": "59"}).keep_last == 59
    with pytest.raises(UsageError, match="the run has 59 saves"):
        settings_of({"confidence": "95/95", "keep_last": "60"})


anything = st.one_of(
    st.text(max_size=12),
    st.builds(
        "{}{}{}".format,
        st.sampled_from(["", "mttf:", "node-days:", "observed:419/54d@", "observed:1/1d@", "n1:", "@", "-"]),
        st.one_of(st.integers(-10, 10**12), st.floats(), st.sampled_from(["1e-300", "1e300", "0", "9" * 400])),
        st.sampled_from(["", "%", "s", "h", "d", "GB", "/3", " "]),
    ),
)


@settings(deadline=None, max_examples=examples(400))
@given(option=st.sampled_from([o.flag for o in OPTIONS]), text=anything)
def test_whatever_is_typed_gives_a_plan_or_a_usage_error(option, text):
    stated, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stated), contextlib.redirect_stderr(errors):
        try:
            code = main(["plan", "--cluster=16000", "--ckpt-model=llama3-8b", f"{option}={text}"])
        except SystemExit as end:
            code = end.code
    assert code in {0, 4}
    # The plan is printed even if the run could not start on this host.
    assert stated.getvalue() or code == 4
    assert ("error: " in errors.getvalue()) == (code == 4)


@settings(deadline=None, max_examples=examples(60))
@given(keys=st.sets(st.sampled_from([k for k in KEYS if k not in {"cluster", "mode", "ranks"}])))
def test_the_words_for_another_command_give_the_same_settings(keys):
    of = settings_of({key: VALUES[key][0] for key in keys})
    words = shlex.split(command_line_of(of))
    stated = {}
    for word in words:
        flag, _, value = word.partition("=")
        stated[flag.removeprefix("--ckpt-").replace("-", "_")] = value or "on"
    assert dataclasses.replace(settings_of(stated), origins=()) == dataclasses.replace(of, origins=())
    # The target does not exist here: the plan is printed, and it states that the run would not start.
    stated, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stated), contextlib.redirect_stderr(errors):
        main(["plan", "--cluster=16000", *words])
    assert "cluster of 16,000 accelerators" in stated.getvalue()


# --- typing errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("--ckpt-targt=x", "--ckpt-target"), ("--ckpt-save-bugdet=3%", "--ckpt-save-budget"), ("--clustr=3", "--cluster")],
)
def test_a_typing_error_in_an_option_gets_a_suggestion(run_pytest, capsys, typo, meant):
    result = run_pytest(typo)
    assert result.ret == 4
    assert f"did you mean '{meant}'?" in result.stderr.str()
    with pytest.raises(SystemExit) as end:
        main(["plan", "--ckpt-model=llama3-8b", typo])
    assert end.value.code == 4
    assert f"did you mean '{meant}'?" in capsys.readouterr().err


def test_an_option_of_another_plugin_that_begins_like_ours_is_its_own(run_pytest, pytester):
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--ckpt-colour')")
    pytester.makepyfile("def test_nothing(): pass")
    run_pytest("--ckpt-colour=red").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("key", "typo", "meant"),
    [("model", "70b", "llama3-70b"), ("model", "lama3-8b", "llama3-8b"), ("suite", "perf", "performance"),
     ("engine", "torhc", "torch"), ("profile", "accept", "acceptance"), ("keep_files", "onn", "on")],
)  # fmt: skip
def test_a_typing_error_in_a_value_gets_a_suggestion(key, typo, meant):
    with pytest.raises(UsageError, match=f"did you mean '{meant}'"):
        settings_of({key: typo})


# --- through pytest --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", ["²8", "٣", "0", "-1", "1_0", "9" * 5000, " 8x"])
def test_slots_are_digits_that_anybody_reads(slots):
    """Only ASCII digits are accepted as slots.

    `str.isdigit` would also accept a superscript 2, which `int` cannot convert.
    """
    with pytest.raises(ValueError, match="is not host:slots, such as node1:8"):
        parsers.read_hosts(f"node1:{slots}")


def test_slots_may_begin_with_zeros():
    assert parsers.read_hosts("node1:008,node2") == (HostSlots(name="node1", slots=8), HostSlots(name="node2", slots=1))


# --- options that an engine cannot serve -----------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["fault_command", "upgrade_command", "snapshot"])
def test_an_engine_whose_ranks_save_together_is_not_asked_to_let_single_ranks_fail(option):
    stated = {option: "true", "engine": "torch,dcp"} | ({"repair_command": "true"} if option == "fault_command" else {})
    flag = option_of(option).flag
    expected = f"(?s){re.escape(flag)} with --ckpt-engine dcp: .*Take stream or torch"
    with pytest.raises(UsageError, match=expected) as caught:
        settings_of(stated)
    assert "save and load only together" in str(caught.value)
    assert settings_of(stated | {"engine": "stream,torch"}).engines == BUILT_IN[:2]


def test_an_engine_that_saves_the_state_itself_takes_no_strategy_that_needs_a_copy():
    own = EngineSpec(name="own", help="", make="a:b", memory=MemoryRule(process_bytes=1))
    engines = known_engines([own])
    with pytest.raises(UsageError, match=r"(?s)--ckpt-strategy async with --ckpt-engine own: .*Take stream or torch"):
        resolve(as_options({"strategy": "async", "engine": "own"}), {}, engines=engines)


def test_an_engine_whose_library_is_missing_names_what_brings_it(monkeypatch):
    monkeypatch.setattr(
        "pytest_ckpt.config.engines.missing_packages", lambda spec: [n for n in spec.packages if n == "safetensors"]
    )
    expected_text = (
        r"(?s)needs the package safetensors, which is not installed.*pip install 'pytest-ckpt\[safetensors\]'"
    )
    with pytest.raises(UsageError, match=expected_text):
        check_installed(next(spec for spec in BUILT_IN if spec.name == "safetensors"))


@pytest.mark.parametrize(("stated", "endpoints"), [
    ("https://s3.array.example:9000", ("https://s3.array.example:9000",)),
    ("http://10.0.0.1/, http://10.0.0.2:80,http://10.0.0.1", ("http://10.0.0.1", "http://10.0.0.2:80")),
    ("embedded", ("embedded",)),
])  # fmt: skip
def test_endpoints_are_urls_each_once(stated, endpoints):
    assert resolve({"ckpt_endpoint": stated}, {}).endpoints == endpoints


@pytest.mark.parametrize("stated", [
    "s3.array.example:9000", "ftp://host", "http://host/path", "http://host?a=b", "http://host:port", "http://",
    "http://me:word@host", "embedded,http://host", "http://a b", "http://[::1",
])  # fmt: skip
def test_an_invalid_endpoint_is_refused(stated):
    with pytest.raises(UsageError) as refused:
        resolve({"ckpt_endpoint": stated}, {})
    assert "--ckpt-endpoint" in refused.value.what


def test_a_range_of_ports_is_two_that_users_may_have_the_lower_first():
    assert parsers.read_ports("20000-20100") == (20_000, 20_100)
    for wrong in ("20000", "20100-20000", "80-90", "60000-70000", "a-b", "-", "1-2-3"):
        with pytest.raises(ValueError, match="two ports from 1024 to 65535 are expected"):
            parsers.read_ports(wrong)


def test_the_rate_of_a_network_is_in_bytes_or_in_bits():
    written = ("25GB/s", "25GBps", "200Gbit/s", "200Gbit", "200Gb/s", "200Gbps")
    assert {resolve({"ckpt_nic_rate": given}, {}).nic_rate for given in written} == {25e9}
    assert resolve({}, {}).nic_rate is None


@pytest.mark.parametrize("given", ["0GB/s", "fast", "200gb/s", "-1GB/s", "bit"])
def test_an_invalid_network_rate_is_refused(given):
    with pytest.raises(UsageError, match="--ckpt-nic-rate"):
        resolve({"ckpt_nic_rate": given}, {})


@pytest.mark.parametrize(("stated", "bytes_per_second"), [
    ("10MB/s", 10e6), ("80Mbit/s", 10e6), ("resnet50", 400 * 114_660 / 0.224 * 0.9),
    ("8xresnet50", 8 * 400 * 114_660 / 0.224 * 0.9),
])  # fmt: skip
def test_the_rate_of_a_data_loader_is_a_rate_or_that_of_accelerators(stated, bytes_per_second):
    assert resolve({"ckpt_loader_rate": stated}, {}).loader_bytes_per_second == bytes_per_second


@pytest.mark.parametrize("stated", ["0", "fast", "8xfast", "0xresnet50", "xresnet50x"])
def test_no_rate_of_a_data_loader(stated):
    with pytest.raises(UsageError, match="loader"):
        resolve({"ckpt_loader_rate": stated}, {})


@pytest.mark.parametrize(
    ("stated", "vendor_max_rates"),
    [
        ("60GB/s", (6e10, 6e10)),
        ("60GB/s:120GB/s", (6e10, 1.2e11)),
        ("1KiB:2KiB", (1024.0, 2048.0)),
        ("8Gb/s", (1e9, 1e9)),
    ],
)
def test_a_ceiling_is_of_saves_and_of_loads(stated, vendor_max_rates):
    assert resolve({"ckpt_vendor_max_rate": stated}, {}).vendor_max_rates == vendor_max_rates


@pytest.mark.parametrize("stated", ["0GB/s", "fast", "1GB:2GB:3GB", "1GB:", "-1GB", "1GB,2GB"])
def test_an_invalid_ceiling_is_refused(stated):
    with pytest.raises(UsageError, match="--ckpt-suite=scaling:vendor-max-rate"):
        resolve({"ckpt_vendor_max_rate": stated}, {})


CODECS = {"zstd": "zstd:1", "zstd:19": "zstd:19", "lz4": "lz4:0", "lz4:012": "lz4:12"}
NO_CODECS = ("", "zst", "zstd:", "zstd:0", "zstd:-1", "zstd:1.5", "lz4:13", "zstd:99999999999", "zstd:1:2")


@pytest.mark.parametrize("text", CODECS)
def test_a_codec_has_a_level(text):
    assert parsers.read_codec(text) == CODECS[text]


@pytest.mark.parametrize("text", NO_CODECS)
def test_an_unknown_codec_lists_the_available_codecs(text):
    with pytest.raises(ValueError, match="expected"):
        parsers.read_codec(text)


def test_a_codec_whose_library_is_missing_names_what_brings_it(monkeypatch):
    monkeypatch.setattr("pytest_ckpt.config.engines.importlib.util.find_spec", lambda _: None)
    expected_text = (
        r"(?s)--ckpt-strategy=compressed:codec lz4:0 needs the package lz4, .*pip install 'pytest-ckpt\[compressed\]'"
    )
    with pytest.raises(UsageError, match=expected_text):
        check_codec_installed(settings_of({"strategy": "compressed", "compress": "lz4", "engine": "stream"}))
    # A codec is not required if no option requests it.
    check_codec_installed(settings_of({"engine": "stream"}))


def test_an_engine_that_a_user_may_look_for_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--cluster=64", "--ckpt-model=llama3-8b", "--ckpt-engine=gds"]) == 4
    shown = capsys.readouterr().err
    assert "GPUDirect Storage is not supported" in shown
    assert "--ckpt-engine=stream" in shown


@pytest.mark.parametrize(("stated", "destination"), [
    ("ckpt.prom", "ckpt.prom"),
    ("/var/lib/node_exporter/ckpt.prom", "/var/lib/node_exporter/ckpt.prom"),
    ("otlp://collector.example/", "otlp://collector.example"),
    ("otlp://[::1]:4318", "otlp://[::1]:4318"),
])  # fmt: skip
def test_metrics_go_to_a_file_or_to_an_endpoint(stated, destination):
    assert resolve({"ckpt_metrics": stated}, {}).metrics == destination


@pytest.mark.parametrize("stated", [
    "ckpt.txt", "/var/lib/.prom", "http://host:4318", "otlp://", "otlp://host/v1/metrics", "otlp://host:port",
    "otlp://host?a=b", "otlp://a b", "otlp://me:word@host", "otlp://[::1",
])  # fmt: skip
def test_an_invalid_destination_of_metrics_is_refused(stated):
    with pytest.raises(UsageError) as refused:
        resolve({"ckpt_metrics": stated}, {})
    assert "--ckpt-metrics" in refused.value.what
