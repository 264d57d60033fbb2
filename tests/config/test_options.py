"""The option table, the sources from which an option can be set, and their precedence."""

from __future__ import annotations

import argparse
import dataclasses
import shlex

import pytest

from pytest_ckpt.config import parsers
from pytest_ckpt.config.options import add_options, command_line_of, options_of_command_line, resolve
from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.facts.options import GROUPS, LISTS, OPTIONS, ROLES, parameters_of
from pytest_ckpt.facts.settings import SUITES, Settings
from pytest_ckpt.facts.strategies import STRATEGY_OF
from pytest_ckpt.grading.document import disclosures
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.support.errors import UsageError
from tests.support.option_examples import KEYS, VALUES, as_options, settings_of

# The options that the documentation promises to scripts.
CONTRACT = {
    "--ckpt-target": "",
    "--ckpt-cluster": "",
    "--ckpt-save-budget": "5%",
    "--ckpt-load-budget": "1%",
    "--ckpt-checkpoints-per-failure": "20",
    "--ckpt-failures": "llama3",
    "--ckpt-model": "all",
    "--ckpt-mode": "auto",
    "--ckpt-ranks": "",
    "--ckpt-hosts": "localhost",
    "--ckpt-launcher": "",
    "--ckpt-engine": "stream",
    "--ckpt-profile": "acceptance",
    "--ckpt-scale": "",
    "--ckpt-operations": "",
    "--ckpt-drop-caches": "auto",
    "--ckpt-io-timeout": "300s",
    "--ckpt-seed": "",
    "--ckpt-keep-files": "off",
    "--ckpt-report": "ckpt-report",
}

# The options whose files are read together with the settings.
FILES = ("config", "actions")


def origin_of_option(of, flag):
    return next(o for o in of.origins if o.option == flag)


def origin(of, key):
    return origin_of_option(of, "--ckpt-" + key.replace("_", "-"))


def refused(key, file, text):
    """Write ``text`` to ``file``, set option ``key`` to this file, and return the message that refuses the file.

    The message must name the file.
    """
    file.write_text(text)
    with pytest.raises(UsageError) as refusal:
        settings_of({key: str(file)})
    assert str(file) in str(refusal.value)
    return str(refusal.value)


# --- the table -------------------------------------------------------------------------------------------------------


def test_every_option_of_the_contract_is_there_with_its_default():
    defaults = {o.flag: o.default for o in OPTIONS}
    assert {flag: defaults.get(flag) for flag in CONTRACT} == CONTRACT


def test_the_cluster_has_a_short_name():
    assert {o.flags for o in OPTIONS if o.key == "cluster"} == {("--cluster", "--ckpt-cluster")}


def test_every_option_of_the_contract_is_tried_here():
    assert {o.key for o in OPTIONS if o.flag in CONTRACT} == set(VALUES)


@pytest.mark.parametrize("option", OPTIONS, ids=[o.key for o in OPTIONS])
def test_every_row_of_the_table_is_complete(option):
    assert option.group in GROUPS
    assert set(option.roles) <= set(ROLES)
    assert callable(getattr(parsers, option.parse))
    assert option.example != option.default
    of = settings_of({option.key: option.example} if option.key not in FILES else {})
    assert option.field == "-" or hasattr(of, option.field or option.key)


def test_every_field_of_the_settings_but_two_is_an_option_s():
    fields = [o.field or o.key for o in OPTIONS if o.field != "-"]
    assert sorted([*fields, "effort", "origins"]) == sorted(f.name for f in dataclasses.fields(Settings))


def test_exactly_the_options_with_the_role_disclosed_are_disclosed():
    gates = Gates(name="", text="")
    for option in OPTIONS:
        if option.key not in FILES:
            found = disclosures(settings_of({option.key: option.example}), gates)
            assert any(line.startswith(f"{option.flag} ") for line in found) is ("disclosed" in option.roles), (
                option.key
            )


def test_without_a_word_the_settings_are_those_of_an_acceptance_run():
    of = settings_of()
    assert (of.target, of.cluster, of.launcher, of.seed) == (None, None, None, None)
    assert (of.save_budget, of.load_budget, of.checkpoints_per_failure, of.failures) == (0.05, 0.01, 20, "llama3")
    assert (of.models, of.mode, of.ranks, of.hosts) == (tuple(MODELS.values()), "auto", 8, ())
    assert (of.engines, of.profile, of.scale, of.operations) == ((BUILT_IN[0],), "acceptance", 1.0, 10)
    assert (of.drop_caches, of.io_timeout_seconds, of.keep_files, of.report) == ("auto", 300.0, False, "ckpt-report")
    assert {o.source for o in of.origins} == {"default"}


# --- where each can be set, and which wins ---------------------------------------------------------------------------


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
    other = {
        "cluster": "1",
        "model": "llama3-1t",
        "hosts": "x:1",
        "profile": "nightly",
        "mode": "full",
        "keep_files": "off",
        "failures": "llama3",
        "io_timeout": "1s",
        "scale": "1",
    }
    other = other.get(key, "9%" if "%" in text else "9")
    file.write_text(f'ckpt_{key} = "{text}"\n')
    assert getattr(settings_of(ini={key: other, "config": str(file)}), field) == value
    file.write_text(f'ckpt_{key} = "{other}"\n')
    assert getattr(settings_of({key: text}, ini={"config": str(file)}), field) == value
    assert getattr(settings_of({key: text}, ini={key: other}), field) == value


def test_the_types_of_toml_are_taken_too(tmp_path):
    file = tmp_path / "array.toml"
    file.write_text(
        "ckpt_cluster = 24_000\nckpt_save_budget = 0.03\nckpt_keep_files = true\n"
        'ckpt_model = ["llama3-8b", "llama3-70b"]\nckpt_hosts = ["n1:4", "n2:4"]\n'
    )
    of = settings_of({"config": str(file)})
    assert (of.cluster, of.save_budget, of.keep_files) == (24_000, 0.03, True)
    assert (of.models, len(of.hosts)) == ((MODELS["llama3-8b"], MODELS["llama3-70b"]), 2)
    file.write_text("ckpt_keep_files = false\n")
    assert settings_of({"config": str(file)}).keep_files is False


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ('[strategy.incremental]\nchnged = "5%"', ["no parameter 'chnged'", "did you mean 'changed'?"]),
        ('[strategy.sync]\nchanged = "5%"', ["'sync' has no parameter 'changed'", "incremental, hybrid"]),
        ('[strategy]\nchanged = "5%"', ["'changed', which is not a table", "[strategy.incremental]"]),
        ('ckpt_changed_pages = "5%"', ["'ckpt_changed_pages' is not an option", "--ckpt-strategy=incremental:changed"]),
        ('[power_cut]\ncommand = "x"', ["'power_cut' is not an option"]),
        ('ckpt_save_budgt = "3%"', ["'ckpt_save_budgt' is not an option", "did you mean 'ckpt_save_budget'?"]),
        ('save_budget = "3%"', ["'save_budget' is not an option", "did you mean 'ckpt_save_budget'?"]),
        ('ckpt_config = "other.toml"', ["'ckpt_config' is not an option"]),
        ("[ckpt]\noverhead = 3", ["'ckpt' is not an option"]),
        ("ckpt_save_budget = ", ["it is not TOML", "ckpt_name = value"]),
        ("ckpt_save_budget = 3", ["--ckpt-save-budget 3", "write 3%"]),
        ('ckpt_save_budget = ""', ["--ckpt-save-budget has no value"]),
    ],
)
def test_a_toml_file_with_a_mistake_is_named(text, expected_text, tmp_path):
    said = refused("config", tmp_path / "array.toml", text)
    for word in expected_text:
        assert word in said


def test_a_toml_file_that_is_not_utf_8_is_named(tmp_path):
    file = tmp_path / "array.toml"
    file.write_bytes(b'ckpt_target = "\xff"')
    with pytest.raises(UsageError, match="it is not TOML"):
        settings_of({"config": str(file)})


def test_an_endurance_lasts_no_longer_than_it_can_be_recorded():
    assert settings_of({"duration": "30d"}).duration_seconds == 30 * 86_400
    with pytest.raises(UsageError, match="up to 30 days are expected"):
        settings_of({"duration": "721h"})


def test_the_error_about_a_wrong_value_names_its_source(tmp_path):
    file = tmp_path / "array.toml"
    file.write_text('ckpt_save_budget = "101%"')
    with pytest.raises(UsageError, match=r"--ckpt-save-budget 101% \(in .*array.toml\)"):
        settings_of({"config": str(file)})
    with pytest.raises(UsageError, match=r"--ckpt-save-budget 101% \(in pytest configuration\)"):
        settings_of(ini={"save_budget": "101%"})
    with pytest.raises(UsageError, match=r"--ckpt-save-budget 101%: "):
        settings_of({"save_budget": "101%"})


# --- parameters of engines, strategies and suites ---------------------------------------------------------------------


def test_a_parameter_stands_behind_the_name_that_it_belongs_to():
    of = settings_of({"strategy": "sync,incremental:changed=10%,full-every=5", "engine": "stream:io-size=8MiB,depth=4"})
    assert [strategy.name for strategy in of.strategies] == ["sync", "incremental"]
    assert (of.changed_pages, of.full_every, of.io_size_bytes, of.io_depth) == (0.1, 5, 8 << 20, 4)
    stated = {o.option: (o.value, o.source) for o in of.origins if o.source != "default"}
    assert stated == {
        "--ckpt-strategy": ("sync,incremental", "command line"),
        "--ckpt-strategy=incremental:changed": ("10%", "command line"),
        "--ckpt-strategy=incremental:full-every": ("5", "command line"),
        "--ckpt-engine": ("stream", "command line"),
        "--ckpt-engine=stream:io-size": ("8MiB", "command line"),
        "--ckpt-engine=stream:depth": ("4", "command line"),
    }


def test_a_parameter_without_a_name_chooses_nothing():
    of = settings_of({"suite": "duration=4h", "strategy": "step=1s,async"})
    assert (of.suites, of.duration_seconds) == (("auto",), 4 * 3600)
    assert ([strategy.name for strategy in of.strategies], of.step_seconds) == (["async"], 1.0)


def test_an_option_given_twice_keeps_the_last_names_and_all_parameters():
    of = settings_of({"suite": "performance,endurance:duration=4h\nserving:readers=2\nnear-full=on"})
    assert of.suites == ("serving",)
    assert (of.duration_seconds, of.serving_readers, of.near_full) == (4 * 3600, 2, True)
    assert settings_of({"engine": "stream:depth=4\ndepth=8"}).io_depth == 8


@pytest.mark.parametrize(("suite", "profile", "asks"), [
    ("all", "smoke", False),
    ("all", "nightly", True),
    ("auto", "smoke", False),
    # A suite that is named explicitly is run.
    ("performance,metadata", "smoke", True),
])  # fmt: skip
def test_all_suites_of_a_smoke_run_are_all_but_metadata(suite, profile, asks):
    of = settings_of({"suite": suite, "profile": profile})
    assert of.includes_metadata is asks
    assert of.includes_scaling is (suite == "all")


def test_a_parameter_in_a_file_counts_for_names_of_the_command_line(tmp_path):
    file = tmp_path / "array.toml"
    file.write_text('[strategy.hybrid]\nchanged = "10%"\nfull-every = 5\n[suite.endurance]\nnear-full = true\n')
    of = settings_of({"config": str(file), "strategy": "incremental:full-every=4"})
    assert (of.changed_pages, of.full_every, of.near_full) == (0.1, 4, True)
    assert origin_of_option(of, "--ckpt-strategy=incremental:changed").source == str(file)


@pytest.mark.parametrize(
    ("given", "expected_text"),
    [
        ({"strategy": "incremental:chnged=5%"}, ["'incremental' has no parameter 'chnged'", "did you mean 'changed'?"]),
        ({"strategy": "incremntal:changed=5%"}, ["'incremntal' has no parameter", "did you mean 'incremental'?"]),
        (
            {"strategy": "sync:step=1s"},
            ["'sync' has no parameter 'step'", "step is a parameter of async, async:process, hybrid"],
        ),
        ({"strategy": "colour=red"}, ["unknown parameter 'colour'", "Parameters of strategy: changed,"]),
        ({"strategy": "hybrid:changed=200%"}, ["--ckpt-strategy=hybrid:changed 200%: "]),
        ({"strategy": "hybrid:changed="}, ["--ckpt-strategy=hybrid:changed has no value"]),
        ({"strategy": "changed=0.1%"}, ["--ckpt-strategy=incremental:changed 0.1%: "]),
        ({"strategy": "incremental:changed=5%,hybrid:changed=6%"}, ["changed is given twice"]),
        ({"strategy": ""}, ["--ckpt-strategy has no value"]),
        ({"engine": "stream:"}, ["--ckpt-engine stream:: one of stream, torch"]),
    ],
)
def test_a_mistake_in_a_parameter_is_named_as_it_was_written(given, expected_text):
    with pytest.raises(UsageError) as refusal:
        settings_of(given)
    for word in expected_text:
        assert word in str(refusal.value)


@pytest.mark.parametrize("owner", ["incremental", "hybrid"])
def test_a_parameter_of_several_names_is_written_behind_each(owner):
    assert settings_of({"strategy": f"{owner}:changed=10%"}).changed_pages == 0.1


def test_every_parameter_is_accepted_in_an_option_and_in_a_file(tmp_path):
    for option in OPTIONS:
        if option.parent in LISTS:
            for owner in option.owners:
                of = settings_of({option.parent: f"{option.name}={option.example}"})
                assert origin_of_option(of, option.flag).value == option.example
                file = tmp_path / "array.toml"
                file.write_text(f"[{option.parent}.\"{owner}\"]\n{option.name} = '{option.example}'\n")
                of = settings_of({"config": str(file)})
                assert origin_of_option(of, option.flag).value == option.example


def test_parameters_have_names_of_their_own_and_owners_that_there_are():
    known = {"engine": [engine.name for engine in BUILT_IN], "strategy": list(STRATEGY_OF), "suite": list(SUITES)}
    for parent in LISTS:
        rows = parameters_of(parent)
        assert len({row.name for row in rows}) == len(rows)
        assert {owner for row in rows for owner in row.owners} <= set(known[parent])
        assert not {row.name for row in rows} & set(known[parent])


def test_words_for_another_command_give_the_same_settings(tmp_path):
    file = tmp_path / "actions.toml"
    file.write_text("[upgrade]\ncommand = 'true'\n")
    given = {"strategy": "sync,hybrid:changed=10%,full-every=5", "suite": "duration=4h", "engine": "depth=4,stream",
             "cluster": "64", "keep_files": "on", "actions": str(file)}  # fmt: skip
    of = settings_of(given)
    parser = argparse.ArgumentParser()
    add_options(parser)
    again = resolve(options_of_command_line(parser.parse_args(shlex.split(command_line_of(of)))), {})
    assert again == of


# --- commands that change the storage ---------------------------------------------------------------------------------

ACTIONS_FILE = """
[power_cut]
command = "pull-the-plug --and-wait"
times = 10
[failover]
fault = "fail-drive 7"
repair = "replace-drive 7"
[upgrade]
command = "rolling-restart"
[snapshot]
take = "take"
remove = "remove"
"""


def test_commands_come_from_the_file_of_actions(tmp_path):
    file = tmp_path / "actions.toml"
    file.write_text(ACTIONS_FILE)
    of = settings_of({"actions": str(file)})
    assert (of.power_cut, of.power_cuts) == ("pull-the-plug --and-wait", 10)
    assert (of.fault_command, of.repair_command, of.upgrade_command) == (
        "fail-drive 7", "replace-drive 7", "rolling-restart"
    )  # fmt: skip
    assert (of.snapshot_command, of.remove_snapshot_command) == ("take", "remove")
    assert origin_of_option(of, "--ckpt-actions [power_cut] command").source == str(file)
    assert settings_of(ini={"actions": str(file)}).power_cuts == 10


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("", ["the file has no entries", "Example: power_cut"]),
        ("[power]\ncommand = 'x'", ["unknown table 'power'", "did you mean 'power_cut'?"]),
        ("power_cut = 'x'", ["unknown table 'power_cut'"]),
        ("[failover]\nbreak = 'x'", ["[failover] has no 'break'", "Entries: fault, repair"]),
        ("[power_cut]\ntimes = 0", ["--ckpt-actions [power_cut] times 0 (in ", "at least 1"]),
        ('[upgrade]\ncommand = "\'"', ["--ckpt-actions [upgrade] command ' (in ", "a command is expected"]),
        ("[upgrade", ["it is not TOML"]),
    ],
)
def test_a_mistake_in_the_file_of_actions_is_named(text, expected_text, tmp_path):
    said = refused("actions", tmp_path / "actions.toml", text)
    for word in expected_text:
        assert word in said


# --- certificates of an endpoint -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ({"target": "s3://b/p"}, {"AWS_CA_BUNDLE": "/a.pem", "SSL_CERT_FILE": "/b.pem"}, "/a.pem"),
        ({"target": "s3://b/p"}, {"SSL_CERT_FILE": "/b.pem"}, "/b.pem"),
        ({"target": "s3://b/p", "endpoint": "https://h:1"}, {"SSL_CERT_FILE": "/b.pem"}, "/b.pem"),
        ({"target": "s3://b/p", "endpoint": "http://h:1"}, {"SSL_CERT_FILE": "/b.pem"}, None),
        ({"target": "s3://b/p", "endpoint": "embedded"}, {"AWS_CA_BUNDLE": "/a.pem"}, None),
        ({"target": "/mnt/array"}, {"AWS_CA_BUNDLE": "/a.pem"}, None),
        ({"target": "s3://b/p"}, {}, None),
    ],
)
def test_the_certificates_of_an_endpoint_come_from_the_environment(given, environment, expected):
    of = resolve(as_options(given), {}, environment=environment)
    assert of.ca_bundle == expected
    source = origin_of_option(of, "AWS_CA_BUNDLE").source
    assert source.startswith("environment variable ") is (expected is not None)
