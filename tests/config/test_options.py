"""Every option: where it can be said, which of two wins, what it takes, and that the report says where it came from."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.cli.main import main
from pytest_ckpt.config import parsers
from pytest_ckpt.config.codecs import check_codec_installed
from pytest_ckpt.config.engines import check_installed, known_engines
from pytest_ckpt.config.options import command_words, resolve
from pytest_ckpt.facts.engines import BUILT_IN, EngineSpec, MemoryRule
from pytest_ckpt.facts.options import GROUPS, OPTIONS, ROLES, with_role
from pytest_ckpt.facts.settings import HostSlots, Settings
from pytest_ckpt.judging.catalogue import REQUIREMENTS
from pytest_ckpt.judging.document import disclosures
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.sizing.models import MODELS
from pytest_ckpt.support.errors import UsageError
from tests.support.selection import examples

# What scripts may rely on, as the documentation promises it.
CONTRACT = {
    "--ckpt-target": "",
    "--ckpt-cluster": "",
    "--ckpt-overhead": "5%",
    "--ckpt-restore-budget": "1%",
    "--ckpt-checkpoints-per-failure": "20",
    "--ckpt-failures": "llama3",
    "--ckpt-model": "all",
    "--ckpt-mode": "auto",
    "--ckpt-processes": "",
    "--ckpt-hosts": "localhost",
    "--ckpt-launcher": "",
    "--ckpt-engine": "torch",
    "--ckpt-profile": "acceptance",
    "--ckpt-scale": "",
    "--ckpt-operations": "",
    "--ckpt-drop-caches": "auto",
    "--ckpt-deadline": "300s",
    "--ckpt-seed": "",
    "--ckpt-keep": "off",
    "--ckpt-report": "ckpt-report",
}

# A value other than the default for each, what it means, and the field of the settings that it ends in.
VALUES = {
    "target": ("/mnt/array", "target", "/mnt/array"),
    "cluster": ("24000", "cluster", 24_000),
    "overhead": ("3%", "overhead", 0.03),
    "restore_budget": ("2%", "restore_budget", 0.02),
    "checkpoints_per_failure": ("10", "checkpoints_per_failure", 10),
    "failures": ("mttf:50000h", "failures", "mttf:50000h"),
    "model": ("llama3-8b", "models", (MODELS["llama3-8b"],)),
    "mode": ("open", "mode", "open"),
    "processes": ("16", "processes", 16),
    "hosts": ("n1:4,n2:4", "hosts", (HostSlots(name="n1", slots=4), HostSlots(name="n2", slots=4))),
    "launcher": ("srun --mpi=pmix", "launcher", "srun --mpi=pmix"),
    "engine": ("stream", "engines", (BUILT_IN[1],)),
    "profile": ("smoke", "profile", "smoke"),
    "scale": ("1/8", "scale", 0.125),
    "operations": ("7", "operations", 7),
    "drop_caches": ("never", "drop_caches", "never"),
    "deadline": ("2min", "deadline_seconds", 120.0),
    "seed": ("42", "seed", 42),
    "keep": ("on", "keep", True),
    "report": ("/var/tmp/r", "report", "/var/tmp/r"),
}
KEYS = list(VALUES)


def settings_of(command_line=(), ini=()):
    return resolve(named(command_line), named(ini))


def named(stated):
    return {f"ckpt_{key}": value for key, value in dict(stated).items()}


def origin(of, key):
    option = "--ckpt-" + key.replace("_", "-")
    return next(o for o in of.origins if o.option == option)


# --- the table -------------------------------------------------------------------------------------------------------


def test_every_option_of_the_contract_is_there_with_its_default():
    defaults = {o.flag: o.default for o in OPTIONS}
    assert {flag: defaults.get(flag) for flag in CONTRACT} == CONTRACT


def test_the_cluster_has_a_short_name():
    assert {o.flags for o in OPTIONS if o.key == "cluster"} == {("--cluster", "--ckpt-cluster")}


def test_every_option_of_the_contract_is_tried_here():
    assert {o.key for o in OPTIONS if o.flag in CONTRACT} == set(VALUES)


@pytest.mark.parametrize("option", OPTIONS, ids=[o.key for o in OPTIONS])
def test_every_row_of_the_table_is_whole(option):
    assert option.group in GROUPS
    assert set(option.roles) <= set(ROLES)
    assert callable(getattr(parsers, option.parse))
    assert option.example != option.default
    of = settings_of({option.key: option.example} if option.key != "config" else {})
    assert option.field == "-" or hasattr(of, option.field or option.key)


def test_every_field_of_the_settings_but_two_is_an_option_s():
    fields = [o.field or o.key for o in OPTIONS if o.field != "-"]
    assert sorted([*fields, "effort", "origins"]) == sorted(f.name for f in dataclasses.fields(Settings))


def test_what_a_certificate_discloses_is_said_by_the_option_s_row():
    gates = Gates(name="", text="")
    for option in OPTIONS:
        if option.key != "config":
            found = disclosures(settings_of({option.key: option.example}), gates)
            assert any(line.startswith(f"{option.flag} ") for line in found) is ("disclosed" in option.roles), (
                option.key
            )


def test_without_a_word_the_settings_are_those_of_an_acceptance_run():
    of = settings_of()
    assert (of.target, of.cluster, of.launcher, of.seed) == (None, None, None, None)
    assert (of.overhead, of.restore_budget, of.checkpoints_per_failure, of.failures) == (0.05, 0.01, 20, "llama3")
    assert (of.models, of.mode, of.processes, of.hosts) == (tuple(MODELS.values()), "auto", 8, ())
    assert (of.engines, of.profile, of.scale, of.operations) == ((BUILT_IN[0],), "acceptance", 1.0, 10)
    assert (of.drop_caches, of.deadline_seconds, of.keep, of.report) == ("auto", 300.0, False, "ckpt-report")
    assert {o.source for o in of.origins} == {"default"}


# --- where each can be said, and which wins --------------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS)
def test_an_option_on_the_command_line(key):
    text, field, value = VALUES[key]
    of = settings_of({key: text})
    assert getattr(of, field) == value
    assert (origin(of, key).value, origin(of, key).source) == (text, "command line")


@pytest.mark.parametrize("key", KEYS)
def test_an_option_in_pytest_s_configuration(key):
    text, field, value = VALUES[key]
    of = settings_of(ini={key: text})
    assert getattr(of, field) == value
    assert origin(of, key).source == "pytest configuration"


@pytest.mark.parametrize("key", KEYS)
def test_an_option_in_a_toml_file(key, tmp_path):
    text, field, value = VALUES[key]
    file = tmp_path / "array.toml"
    file.write_text(f'ckpt_{key} = "{text}"\n')
    for way in ({"command_line": {"config": str(file)}}, {"ini": {"config": str(file)}}):
        of = settings_of(**way)
        assert getattr(of, field) == value
        assert origin(of, key).source == str(file)


@pytest.mark.parametrize("key", [k for k in KEYS if k != "engine"])
def test_the_command_line_wins_over_the_file_and_the_file_over_the_configuration(key, tmp_path):
    text, field, value = VALUES[key]
    file = tmp_path / "array.toml"
    other = {"cluster": "1", "model": "llama3-1t", "hosts": "x:1", "profile": "nightly", "mode": "full", "keep": "off",
             "failures": "llama3", "deadline": "1s", "scale": "1"}.get(key, "9%" if "%" in text else "9")  # fmt: skip
    file.write_text(f'ckpt_{key} = "{text}"\n')
    assert getattr(settings_of(ini={key: other, "config": str(file)}), field) == value
    file.write_text(f'ckpt_{key} = "{other}"\n')
    assert getattr(settings_of({key: text}, ini={"config": str(file)}), field) == value
    assert getattr(settings_of({key: text}, ini={key: other}), field) == value


def test_the_types_of_toml_are_taken_too(tmp_path):
    file = tmp_path / "array.toml"
    file.write_text(
        "ckpt_cluster = 24_000\nckpt_overhead = 0.03\nckpt_keep = true\n"
        'ckpt_model = ["llama3-8b", "llama3-70b"]\nckpt_hosts = ["n1:4", "n2:4"]\n'
    )
    of = settings_of({"config": str(file)})
    assert (of.cluster, of.overhead, of.keep) == (24_000, 0.03, True)
    assert (of.models, len(of.hosts)) == ((MODELS["llama3-8b"], MODELS["llama3-70b"]), 2)
    file.write_text("ckpt_keep = false\n")
    assert settings_of({"config": str(file)}).keep is False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('ckpt_overhaed = "3%"', ["'ckpt_overhaed' is no option", "did you mean 'ckpt_overhead'?", "ckpt_target"]),
        ('overhead = "3%"', ["'overhead' is no option", "did you mean 'ckpt_overhead'?"]),
        ('ckpt_config = "other.toml"', ["'ckpt_config' is no option"]),
        ("[ckpt]\noverhead = 3", ["'ckpt' is no option"]),
        ("ckpt_overhead = ", ["it is not TOML", "ckpt_name = value"]),
        ("ckpt_overhead = 3", ["--ckpt-overhead 3", "write 3%"]),
        ('ckpt_overhead = ""', ["--ckpt-overhead has no value"]),
    ],
)
def test_a_toml_file_with_a_mistake_is_named(text, says, tmp_path):
    file = tmp_path / "array.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as refusal:
        settings_of({"config": str(file)})
    for word in (str(file), *says):
        assert word in str(refusal.value)


def test_a_toml_file_that_is_not_utf_8_is_named(tmp_path):
    file = tmp_path / "array.toml"
    file.write_bytes(b'ckpt_target = "\xff"')
    with pytest.raises(UsageError, match="it is not TOML"):
        settings_of({"config": str(file)})


def test_an_endurance_lasts_no_longer_than_it_can_be_recorded():
    assert settings_of({"duration": "30d"}).duration_seconds == 30 * 86_400
    with pytest.raises(UsageError, match="up to 30 days are expected"):
        settings_of({"duration": "721h"})


def test_a_wrong_value_says_where_it_was_written(tmp_path):
    file = tmp_path / "array.toml"
    file.write_text('ckpt_overhead = "101%"')
    with pytest.raises(UsageError, match=r"--ckpt-overhead 101% \(in .*array.toml\)"):
        settings_of({"config": str(file)})
    with pytest.raises(UsageError, match=r"--ckpt-overhead 101% \(in pytest configuration\)"):
        settings_of(ini={"overhead": "101%"})
    with pytest.raises(UsageError, match=r"--ckpt-overhead 101%: "):
        settings_of({"overhead": "101%"})


# --- what each takes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "texts", "value"),
    [
        ("cluster", ["16000", "16,000", "16_000", " 16000 "], 16_000),
        ("overhead", ["3%", "0.03", "3/100", "3 %"], 0.03),
        ("restore_budget", ["0.5%", "5e-3", "1/200"], 0.005),
        ("deadline", ["90", "90s", "1.5min", "90 seconds", "90000ms", "0.025h"], 90.0),
        ("scale", ["1%", "0.01", "1/100"], 0.01),
        ("seed", ["255", "0xff", "0b11111111"], 255),
        ("model", ["llama3-8b,llama3-70b", "llama3-70b, llama3-8b", "llama3-8b,,llama3-70b,llama3-8b"],
         (MODELS["llama3-8b"], MODELS["llama3-70b"])),
        ("model", ["all", " all "], tuple(MODELS.values())),
        ("hosts", ["n1:8,n2", "n1:8, n2:1", "n1:8,n2:"],
         (HostSlots(name="n1", slots=8), HostSlots(name="n2", slots=1))),
        ("hosts", ["localhost"], ()),
        ("keep", ["on", "true", "True"], True),
        ("keep", ["off", "false"], False),
    ],
)  # fmt: skip
def test_ways_to_write_the_same(key, texts, value):
    field = VALUES[key][1]
    assert [getattr(settings_of({key: text}), field) for text in texts] == [value] * len(texts)


def test_hosts_come_from_a_file_of_open_mpi_or_slurm(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# the rack\nn1 slots=4\nn2:2   # old\n\nn3\n")
    assert [(h.name, h.slots) for h in settings_of({"hosts": f"@{file}"}).hosts] == [("n1", 4), ("n2", 2), ("n3", 1)]


def test_processes_are_the_slots_of_the_hosts_unless_said():
    assert settings_of({"hosts": "n1:4,n2:2"}).processes == 6
    assert settings_of({"hosts": "n1:4,n2:2", "processes": "3"}).processes == 3


def test_scale_and_operations_take_the_place_of_the_profile_s():
    of = settings_of({"profile": "smoke", "scale": "1/8"})
    assert (of.scale, of.operations) == (0.125, 3)
    of = settings_of({"profile": "smoke", "operations": "5"})
    assert (of.scale, of.operations) == (0.001, 5)


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
    # A plan of what would not start on this host is printed all the same.
    assert stated.getvalue() or code == 4
    assert ("error: " in errors.getvalue()) == (code == 4)


@settings(deadline=None, max_examples=examples(60))
@given(keys=st.sets(st.sampled_from([k for k in KEYS if k not in {"cluster", "mode", "processes"}])))
def test_the_words_for_another_command_give_the_same_settings(keys):
    of = settings_of({key: VALUES[key][0] for key in keys})
    words = shlex.split(command_words(of))
    stated = {}
    for word in words:
        flag, _, value = word.partition("=")
        stated[flag.removeprefix("--ckpt-").replace("-", "_")] = value or "on"
    assert dataclasses.replace(settings_of(stated), origins=()) == dataclasses.replace(of, origins=())
    # There is no such target here: it is planned for, and the run is said not to start.
    stated, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stated), contextlib.redirect_stderr(errors):
        main(["plan", "--cluster=16000", *words])
    assert "cluster of 16,000 accelerators" in stated.getvalue()


# --- help ------------------------------------------------------------------------------------------------------------


def one_line(text):
    """Without white space: help is broken into lines at spaces and hyphens."""
    return "".join(text.split())


def test_pytest_s_help_lists_every_option_with_its_words_and_default(front_door):
    text = front_door("--help").stdout.str()
    groups = {name: text.split(f"\npytest-ckpt: {name}:\n")[1].split("\n\n")[0] for name in GROUPS}
    for option in OPTIONS:
        stated = one_line(groups[option.group])
        default = f" (default: {option.default})" if option.default else ""
        assert one_line(option.help + default) in stated
        for flag in option.flags:
            assert (flag if option.is_flag else f"{flag}={option.metavar}") in stated
    listed = [re.findall(r"^  -", group, re.MULTILINE) for group in groups.values()]
    assert sum(map(len, listed)) == len(OPTIONS)


def test_pytest_s_help_lists_every_name_for_configuration_files(front_door):
    text = front_door("--help").stdout.str()
    for option in OPTIONS:
        assert re.search(rf"^  {option.ini_name} \(string\)", text, re.MULTILINE)


@pytest.mark.parametrize(("word", "options"), [("plan", OPTIONS), ("doctor", OPTIONS), ("judge", with_role("limit"))])
def test_the_command_s_help_lists_the_same_in_the_same_groups(capsys, word, options):
    with pytest.raises(SystemExit) as end:
        main([word, "--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0
    for option in options:
        stated = one_line(text.split(f"\n{option.group}:\n")[1].split("\n\n")[0])
        default = f" (default: {option.default})" if option.default else ""
        assert one_line(option.help + default) in stated
        for flag in option.flags:
            assert one_line(flag if option.is_flag else f"{flag} {option.metavar}") in stated


def test_every_help_text_is_in_one_style():
    for option in OPTIONS:
        assert option.help[0].islower(), option.key
        assert not option.help.endswith("."), option.key
        assert option.is_flag or option.metavar


def test_help_with_a_target_starts_nothing(front_door, pytester):
    (pytester.path / "target").mkdir()
    for asked in ("--help", "--version"):
        assert front_door("--ckpt-target=target", "--cluster=16000", asked).ret == 0
    assert not any((pytester.path / "target").iterdir())
    assert not (pytester.path / "ckpt-report").exists()


# --- typing errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("--ckpt-targt=x", "--ckpt-target"), ("--ckpt-overhed=3%", "--ckpt-overhead"), ("--clustr=3", "--cluster")],
)
def test_a_typing_error_in_an_option_gets_a_suggestion(front_door, capsys, typo, meant):
    result = front_door(typo)
    assert result.ret == 4
    assert f"did you mean '{meant}'?" in result.stderr.str()
    with pytest.raises(SystemExit) as end:
        main(["plan", "--ckpt-model=llama3-8b", typo])
    assert end.value.code == 4
    assert f"did you mean '{meant}'?" in capsys.readouterr().err


def test_an_option_of_another_plugin_that_begins_like_ours_is_its_own(front_door, pytester):
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--ckpt-colour')")
    pytester.makepyfile("def test_nothing(): pass")
    front_door("--ckpt-colour=red").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("key", "typo", "meant"),
    [("model", "70b", "llama3-70b"), ("model", "lama3-8b", "llama3-8b"), ("suite", "perf", "performance"),
     ("engine", "torhc", "torch"), ("profile", "accept", "acceptance"), ("keep", "onn", "on")],
)  # fmt: skip
def test_a_typing_error_in_a_value_gets_a_suggestion(key, typo, meant):
    with pytest.raises(UsageError, match=f"did you mean '{meant}'"):
        settings_of({key: typo})


# --- through pytest --------------------------------------------------------------------------------------------------

TINY = "--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-processes=1", "--ckpt-profile=smoke"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\nckpt_target = {target}\nckpt_cluster = 0\n"),
        ("tox.ini", "[pytest]\nckpt_target = {target}\nckpt_cluster = 0\n"),
        ("pyproject.toml", '[tool.pytest.ini_options]\nckpt_target = "{target}"\nckpt_cluster = 0\n'),
    ],
)
def test_pytest_s_own_files_are_read(front_door, pytester, name, text):
    target = pytester.mkdir("target")
    (pytester.path / name).write_text(text.format(target=target))
    result = front_door()
    assert result.ret == 4
    assert "--ckpt-cluster 0 (in pytest configuration)" in result.stderr.str()


def test_a_target_in_the_toml_file_is_enough(front_door, pytester):
    (pytester.path / "array.toml").write_text('ckpt_target = "missing"\nckpt_cluster = 16000\n')
    result = front_door("--ckpt-config=array.toml")
    assert result.ret == 4
    assert "missing does not exist" in result.stderr.str()


def test_an_empty_line_of_the_configuration_says_nothing(front_door, pytester):
    pytester.mkdir("target")
    (pytester.path / "pytest.ini").write_text("[pytest]\nckpt_overhead =\nckpt_target =\n")
    assert front_door().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_the_report_says_where_every_value_came_from_and_discloses_what_is_not_usual(front_door, pytester):
    """The ranks are started once, to see their host; no test is run, so nothing is measured."""
    pytester.mkdir("target")
    (pytester.path / "array.toml").write_text('ckpt_overhead = "3%"\nckpt_restore_budget = "3%"\n')
    (pytester.path / "pytest.ini").write_text(
        "[pytest]\nckpt_cluster = 24000\nckpt_overhead = 4%\nckpt_restore_budget = 4%\nckpt_config = array.toml\n"
    )
    result = front_door("-k", "no_test_has_this_name", "--ckpt-target=target", "--ckpt-restore-budget=2%", *TINY)
    assert result.ret == 8
    report = json.loads((pytester.path / "ckpt-report" / "report.json").read_text())
    stated = {s["option"]: (s["value"], s["source"]) for s in report["settings"]}
    assert stated["--ckpt-target"] == ("target", "command line")
    assert stated["--ckpt-cluster"] == ("24000", "pytest configuration")
    assert stated["--ckpt-overhead"] == ("3%", "array.toml")
    assert stated["--ckpt-restore-budget"] == ("2%", "command line")
    assert stated["--ckpt-failures"] == ("llama3", "default")
    assert (report["cluster"]["accelerators"], report["cluster"]["overhead"]) == (24_000, 0.03)
    assert report["cluster"]["restore_budget"] == 0.02
    assert set(report["disclosures"]) == {
        "--ckpt-overhead 3% (default 5%; from array.toml)",
        "--ckpt-restore-budget 2% (default 1%; from command line)",
        "--ckpt-model llama3-8b (default all; from command line)",
        "--ckpt-mode open (default auto; from command line)",
        "--ckpt-processes 1 (default none; from command line)",
        "--ckpt-profile smoke (default acceptance; from command line)",
    }


def test_listing_the_tests_launches_nothing_and_writes_nothing(front_door, pytester):
    target = pytester.mkdir("target")
    asked = sum(r.suite == "performance" and r.is_asked(settings_of()) for r in REQUIREMENTS.values())
    result = front_door(
        "--collect-only", "-q", "--ckpt-target=target", "--cluster=16000", "--ckpt-gates=speed-only", *TINY
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_every_save_meets_the_budget?llama3-8b-open-1?", f"{asked} tests collected*"])
    assert list(target.iterdir()) == []
    assert not (pytester.path / "ckpt-report").exists()


@pytest.mark.parametrize("slots", ["²8", "٣", "0", "-1", "1_0", "9" * 5000, " 8x"])
def test_slots_are_digits_that_anybody_reads(slots):
    """`str.isdigit` is true of a small 2, which `int` does not read."""
    with pytest.raises(ValueError, match="is not host:slots, such as node1:8"):
        parsers.read_hosts(f"node1:{slots}")


def test_slots_may_begin_with_zeros():
    assert parsers.read_hosts("node1:008,node2") == (HostSlots(name="node1", slots=8), HostSlots(name="node2", slots=1))


# --- options that an engine cannot serve -----------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["break", "during", "snapshot"])
def test_an_engine_whose_ranks_save_together_is_not_asked_to_let_single_ranks_fail(option):
    stated = {option: "true", "engine": "torch,dcp"} | ({"mend": "true"} if option == "break" else {})
    with pytest.raises(
        UsageError, match=f"(?s)--ckpt-{option} with --ckpt-engine dcp: .*Take torch or stream"
    ) as caught:
        settings_of(stated)
    assert "save and load together only" in str(caught.value)
    assert settings_of(stated | {"engine": "torch,stream"}).engines == BUILT_IN[:2]


def test_an_engine_that_saves_the_state_itself_takes_no_strategy_that_needs_a_copy():
    own = EngineSpec(name="own", help="", make="a:b", memory=MemoryRule(process_bytes=1))
    engines = known_engines([own])
    with pytest.raises(UsageError, match=r"(?s)--ckpt-strategy async with --ckpt-engine own: .*Take torch or stream"):
        resolve(named({"strategy": "async", "engine": "own"}), {}, engines=engines)


def test_an_engine_whose_library_is_missing_names_what_brings_it(monkeypatch):
    monkeypatch.setattr(
        "pytest_ckpt.config.engines.missing_packages", lambda spec: [n for n in spec.packages if n == "safetensors"]
    )
    says = r"(?s)needs the package safetensors, which is not installed.*pip install 'pytest-ckpt\[safetensors\]'"
    with pytest.raises(UsageError, match=says):
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
def test_what_is_no_endpoint_is_refused(stated):
    with pytest.raises(UsageError) as refused:
        resolve({"ckpt_endpoint": stated}, {})
    assert "--ckpt-endpoint" in refused.value.what


def test_a_range_of_ports_is_two_that_users_may_have_the_lower_first():
    assert parsers.read_ports("20000-20100") == (20_000, 20_100)
    for wrong in ("20000", "20100-20000", "80-90", "60000-70000", "a-b", "-", "1-2-3"):
        with pytest.raises(ValueError, match="two ports from 1024 to 65535 are expected"):
            parsers.read_ports(wrong)


def test_the_rate_of_a_network_is_in_bytes_or_in_bits():
    rates = [resolve({"ckpt_nic_rate": given}, {}).nic_rate for given in ("25GB/s", "200Gbit/s", "200Gbit")]
    assert rates == [25e9, 25e9, 25e9]
    assert resolve({}, {}).nic_rate is None


@pytest.mark.parametrize("given", ["0GB/s", "fast", "200Gb/s", "-1GB/s", "bit"])
def test_what_is_no_rate_of_a_network_is_refused(given):
    with pytest.raises(UsageError, match="--ckpt-nic-rate"):
        resolve({"ckpt_nic_rate": given}, {})


@pytest.mark.parametrize(
    ("stated", "ceilings"),
    [("60GB/s", (6e10, 6e10)), ("60GB/s,120GB/s", (6e10, 1.2e11)), ("1KiB, 2KiB", (1024.0, 2048.0))],
)
def test_a_ceiling_is_of_saves_and_of_loads(stated, ceilings):
    assert resolve({"ckpt_ceiling": stated}, {}).ceilings == ceilings


@pytest.mark.parametrize("stated", ["0GB/s", "fast", "1GB,2GB,3GB", "1GB,", "-1GB"])
def test_what_is_no_ceiling_is_refused(stated):
    with pytest.raises(UsageError, match="--ckpt-ceiling"):
        resolve({"ckpt_ceiling": stated}, {})


CODECS = {"zstd": "zstd:1", "zstd:19": "zstd:19", "lz4": "lz4:0", "lz4:012": "lz4:12"}
NO_CODECS = ("", "zst", "zstd:", "zstd:0", "zstd:-1", "zstd:1.5", "lz4:13", "zstd:99999999999", "zstd:1:2")


@pytest.mark.parametrize("text", CODECS)
def test_a_codec_has_a_level(text):
    assert parsers.read_codec(text) == CODECS[text]


@pytest.mark.parametrize("text", NO_CODECS)
def test_a_codec_that_there_is_not_says_which_there_are(text):
    with pytest.raises(ValueError, match="expected"):
        parsers.read_codec(text)


def test_a_codec_whose_library_is_missing_names_what_brings_it(monkeypatch):
    monkeypatch.setattr("pytest_ckpt.config.codecs.importlib.util.find_spec", lambda _: None)
    says = r"(?s)--ckpt-compress lz4:0 needs the package lz4, .*pip install 'pytest-ckpt\[compressed\]'"
    with pytest.raises(UsageError, match=says):
        check_codec_installed(settings_of({"strategy": "compressed", "compress": "lz4", "engine": "stream"}))
    # What is not asked for needs nothing.
    check_codec_installed(settings_of({"engine": "stream"}))


def test_an_engine_that_a_user_may_look_for_is_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--cluster=64", "--ckpt-model=llama3-8b", "--ckpt-engine=gds"]) == 4
    shown = capsys.readouterr().err
    assert "there is no engine for GPUDirect Storage" in shown
    assert "--ckpt-engine=torch" in shown
