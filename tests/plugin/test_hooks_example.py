"""The example plugin of the documentation: each of its hooks has a visible effect in the files of a run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from tests.support import jsonschema_validation
from tests.support.end_to_end import CHECKOUT, MEASURED, REQUIRED, SUBJECT, Run, Runner, temporary_runner
from tests.support.vendor_directory import QUICK, SUITE, put_example

PLUGIN = f"{SUITE}/conftest.py"


def setting(run: Run, option: str) -> dict[str, str]:
    (found,) = (s for s in run.document["settings"] if s["option"] == option)
    return found


def page(run: Run) -> str:
    return unescape((run.report / "certificate.html").read_text())


def test_both_suites_run_and_everything_required_is_met(acme: Run) -> None:
    assert acme.code == 0, acme.text
    assert acme.outcomes() == dict.fromkeys(REQUIRED, "met")
    assert acme.verdict("ACME-DROPPED")["outcome"] == "met"
    assert acme.left_on_target == []


def test_the_report_follows_its_schema(acme: Run) -> None:
    assert jsonschema_validation.violations(acme.document, "report") == []


@pytest.mark.parametrize(("option", "word"), [("--ckpt-drop-caches", "acme_tool.py"), ("--ckpt-launcher", "mpiexec")])
def test_a_value_from_a_hook_is_used_and_disclosed_with_its_source(acme: Run, option: str, word: str) -> None:
    found = setting(acme, option)
    assert word in found["value"]
    assert found["source"] == f"hook of {PLUGIN}"
    (sentence,) = (s for s in acme.document["disclosures"] if s.startswith(option))
    assert sentence.endswith(f"from hook of {PLUGIN})")
    assert sentence[:150] in page(acme), "the page shortens what is very long"


def test_the_command_that_drops_caches_is_the_hook_s(acme: Run) -> None:
    method = acme.measurement()["cache"]["method"]
    assert method == f"command on every host: {setting(acme, '--ckpt-drop-caches')['value']}"
    assert acme.measurement()["cache"]["resident_fraction"] == 0


def test_the_launcher_is_the_hook_s(acme: Run) -> None:
    for launch in ("probe", "1"):
        assert "-x ACME_READ_AHEAD=off -n 2" in (acme.report / "launches" / launch / "command").read_text()


def test_a_power_cut_that_no_plugin_knows_has_its_default(acme: Run) -> None:
    assert setting(acme, "--ckpt-actions [power_cut] command") == {
        "option": "--ckpt-actions [power_cut] command", "value": "", "default": "", "source": "default"
    }  # fmt: skip


def test_plugin_version_hooks_and_facts_appear_in_the_environment(acme: Run) -> None:
    (plugin,) = acme.document["environment"]["plugins"]
    assert (plugin["name"], plugin["version"]) == (PLUGIN, "2.1")
    assert plugin["facts"] == {"firmware": "7.2.1", "health before the run": "healthy"}
    assert len(plugin["hooks"]) == 9
    (sentence,) = (s for s in acme.document["disclosures"] if s.startswith("plugin"))
    assert sentence.startswith(f"plugin {PLUGIN} 2.1 takes part with drop_caches, power_cut, launch_command, ")
    for text in (sentence, "7.2.1", "health before the run"):
        assert text in page(acme)
    assert f"ckpt {sentence}" in acme.text


def test_the_time_of_hooks_is_a_stage_and_no_operation_s(acme: Run) -> None:
    stages = acme.measurement()["stages"]
    assert stages["hooks"] > 0
    assert acme.document["stages"]["hooks"] == stages["hooks"]
    for operation in acme.measurement()["operations"]:
        assert "hooks" not in operation["phases"]


def test_the_hook_after_a_measurement_saw_it(acme: Run) -> None:
    (line,) = (acme.home / "acme.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "subject": MEASURED, "load_seconds": [o["seconds"] for o in acme.operations("load")]
    }  # fmt: skip


def test_the_measurement_file_kept_for_the_hook_is_removed(acme: Run) -> None:
    assert not list((acme.report / "launches").rglob(f"{SUBJECT}+stream.json"))


def test_requirements_of_the_plugin_appear_in_the_catalogue_with_the_text_of_their_judge(acme: Run) -> None:
    rows = {row["id"]: row for row in acme.document["catalogue"]}
    assert {row["plugin"] for row in rows.values()} == {"", PLUGIN}
    assert rows["ACME-WARMUP"] == {
        "id": "ACME-WARMUP",
        "title": "The first load is no slower",
        "severity": "advisory",
        "text": "The first load takes at most twice as long as those that follow.\n\nAfter a failure a job loads once, "
        "so its load is always a first load.",
        "source": "ACME's data sheet",
        "suite": "performance",
        "plugin": PLUGIN,
        "next_step": "Ask ACME which shelf was cold.",
        "also_known_as": [],
    }
    assert "After a failure a job loads once, so its load is always a first load." in page(acme)
    assert f"required and judged by plugin {PLUGIN}" in page(acme)


def test_their_verdicts_stand_everywhere_and_name_the_plugin(acme: Run) -> None:
    warmup = acme.verdict("ACME-WARMUP")
    assert (warmup["limit"], warmup["unit"], warmup["severity"]) == (2.0, "x", "advisory")
    assert re.search(rf"^requirements of plugin {re.escape(PLUGIN)}: .*met", acme.text, re.MULTILINE)
    for file in (acme.report / "junit.xml", acme.home / "pytest.xml"):
        cases = [
            {p.get("name"): p.get("value") for p in case.findall("./properties/property")}
            for case in ET.parse(file).getroot().iter("testcase")
        ]
        (case,) = (c for c in cases if c.get("requirement") == "ACME-DROPPED")
        assert (case["outcome"], case["subject"]) == ("met", MEASURED)
    properties = ET.parse(acme.report / "junit.xml").getroot().findall(".//property[@name='plugin']")
    assert [p.get("value") for p in properties] == [PLUGIN, PLUGIN]
    assert page(acme).count(f"of plugin {PLUGIN}</p>") == 2


def test_the_section_of_a_plugin_appears_in_report_and_certificate_below_the_plugin_s_name(acme: Run) -> None:
    (section,) = acme.document["sections"]
    assert section["plugin"] == PLUGIN
    assert section["title"] == "Ordering this array"
    assert section["head"] == ["checkpoint", "accelerators that one shelf serves"]
    ((subject, size),) = section["rows"]
    assert subject == MEASURED
    assert (size, acme.document["sufficient_up_to_accelerators"][0]["overall"]) == ("unknown", None)
    drawn = page(acme)
    places = [
        "Requirements in words",
        f"<h2>Written by plugin {PLUGIN}</h2>",
        "pytest-ckpt did not measure or judge this part.",
        "<h3>Ordering this array</h3>",
    ]
    assert all(place in drawn for place in places)
    assert sorted(places, key=drawn.index) == places


# --- the commands of docs/writing_a_hook.md --------------------------------------------------------------------------


def shown(language: str) -> str:
    """Return the code block of docs/writing_a_hook.md in the language ``language``."""
    page = (CHECKOUT / "docs" / "writing_a_hook.md").read_text()
    (text,) = re.findall(rf"^<!-- tried by .* -->\n```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.mark.thorough
@pytest.mark.parametrize(("number", "code"), [(0, 0), (1, 0)])
def test_the_shown_commands_have_the_stated_exit_codes(runner: Runner, number: int, code: int) -> None:
    put_example(runner.home).rename(runner.home / "acme")
    program, target, cluster, *words = shlex.split(shown("sh").splitlines()[number])
    assert (program, target, cluster) == ("pytest", "--ckpt-target=/mnt/array", "--cluster=16000")
    run = runner.run(*QUICK, *words)
    assert run.code == code, run.text
    assert run.verdict("ACME-DROPPED")["outcome"] == "met"


@pytest.mark.thorough
def test_the_pytest_ini_that_is_shown_runs_both(runner: Runner) -> None:
    put_example(runner.home).rename(runner.home / "acme")
    text = shown("ini").replace("/mnt/array", str(runner.target)).replace("16000", "64")
    more = {"ckpt_" + k.removeprefix("--ckpt-"): v for k, v in (o.split("=") for o in QUICK)}
    (runner.home / "pytest.ini").write_text(text + "".join(f"{name} = {value}\n" for name, value in more.items()))
    words = [sys.executable, "-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider"]
    path = {"PYTHONPATH": str(CHECKOUT)}
    speed = ["--ckpt-gate-table=speed-only"]
    done = subprocess.run([*words, *speed], cwd=runner.home, env=os.environ | path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()
    report = json.loads((runner.home / "ckpt-report" / "report.json").read_text())
    outcomes = {v["id"]: v["outcome"] for v in report["requirements"]}
    assert (outcomes["SAVE"], outcomes["ACME-DROPPED"]) == ("met", "met")


# --- which suites run ------------------------------------------------------------------------------------------------


def decided(run: Run) -> list[tuple[str, str, str]]:
    """Return (requirement, severity, outcome) of each verdict, in order.

    The outcome of an advisory verdict is replaced by an empty text, because it may vary by chance.
    """
    return [
        (v["id"], v["severity"], v["outcome"] if v["severity"] == "required" else "")
        for v in run.document["requirements"]
    ]


@pytest.mark.thorough
def test_over_workers_it_is_the_same(acme: Run, create_home: Callable[[str], Path]) -> None:
    with temporary_runner(create_home("workers")) as runner:
        put_example(runner.home)
        run = runner.run(*QUICK, "-n", "2", "--pyargs", "pytest_ckpt.suites", SUITE)
    assert run.code == 0, run.text
    assert decided(run) == decided(acme)
    assert run.launches == ["1"]
    assert setting(run, "--ckpt-drop-caches")["source"] == f"hook of {PLUGIN}"
    assert run.document["environment"]["plugins"] == acme.document["environment"]["plugins"]
    assert run.measurement()["stages"]["hooks"] > 0
    assert len((run.home / "acme.jsonl").read_text().splitlines()) == 1
    assert [s["title"] for s in run.document["sections"]] == ["Ordering this array"]


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.thorough)])
def test_measurements_of_the_vendor_s_directory_alone_are_judged_by_the_built_in_judges(
    runner: Runner, workers: tuple[str, ...]
) -> None:
    put_example(runner.home)
    run = runner.run(*QUICK, *workers, SUITE)
    assert run.code == 0, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "met")
    assert run.verdict("ACME-DROPPED")["outcome"] == "met"


@pytest.mark.thorough
def test_without_test_arguments_the_suites_of_a_plugin_run_beside_the_built_in_suites(runner: Runner) -> None:
    """If the command line names no test, the suites of a plugin run in addition to the built-in suites.

    The plugin is loaded by its module name, like a package with an entry point.
    """
    directory = put_example(runner.home)
    (directory / "conftest.py").rename(directory / "acme_acceptance.py")
    run = runner.run(*QUICK, "-p", "acme_acceptance", environment={"PYTHONPATH": f"{directory}:{CHECKOUT}"})
    assert run.code == 0, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "met")
    assert run.verdict("ACME-DROPPED")["outcome"] == "met"
    assert [p["name"] for p in run.document["environment"]["plugins"]] == ["acme_acceptance"]


@pytest.mark.thorough
def test_a_plugin_s_requirements_are_judged_whatever_is_named_and_not_run_where_deselected(runner: Runner) -> None:
    directory = put_example(runner.home)
    (directory / "conftest.py").rename(directory / "acme_acceptance.py")
    path = {"PYTHONPATH": f"{directory}:{CHECKOUT}"}
    words = (*QUICK, "-p", "acme_acceptance", "pytest_ckpt.suites")
    run = runner.run(*words, environment=path)
    assert run.code == 0, run.text
    assert run.verdict("ACME-DROPPED")["outcome"] == "met"
    run = runner.run(*words, "-k", "not ACME", environment=path, report=runner.home / "deselected")
    assert run.code == 8, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "met")
    verdict = run.verdict("ACME-DROPPED")
    assert (verdict["outcome"], verdict["severity"]) == ("not run", "required")
    assert "ACME-DROPPED, ACME-WARMUP of" in run.text


@pytest.mark.thorough
def test_a_test_of_the_built_in_suites_can_be_named_beside_a_plugin_s_suite(runner: Runner) -> None:
    put_example(runner.home)
    test = "pytest_ckpt.suites.test_performance::SAVE"
    run = runner.run(*QUICK, "--pyargs", test, SUITE)
    assert run.code == 0, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "met")
    assert run.verdict("ACME-DROPPED")["outcome"] == "met"


# --- options and hooks -----------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_an_option_wins_over_the_hook_and_a_hook_speaks_where_the_rack_has_a_switch(runner: Runner) -> None:
    put_example(runner.home)
    run = runner.run(*QUICK, "--ckpt-drop-caches=auto", SUITE, environment={"ACME_POWER_SWITCH": "pdu 3"})
    assert run.code == 1, run.text
    assert setting(run, "--ckpt-drop-caches")["source"] == "command line"
    assert setting(run, "--ckpt-actions [power_cut] command")["value"] == "acme-power cycle 'pdu 3'"
    assert setting(run, "--ckpt-actions [power_cut] command")["source"] == f"hook of {PLUGIN}"
    # The kernel emptied the caches, but the vendor requires another method.
    verdict = run.verdict("ACME-DROPPED")
    assert verdict["outcome"] == "failed"
    assert "Caches were emptied otherwise" in verdict["because"]
    assert f"failed: ACME-DROPPED of {SUBJECT}/stream: Caches were emptied otherwise" in run.text


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.thorough)])
def test_a_hook_that_will_not_have_it_fails_the_measurement_before_a_rank_starts(
    runner: Runner, workers: tuple[str, ...]
) -> None:
    put_example(runner.home)
    ill = {"ACME_HEALTH": "rebuilding"}
    run = runner.run(*QUICK, *workers, "--pyargs", "pytest_ckpt.suites", SUITE, environment=ill)
    assert run.code == 8, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "not run")
    failure = run.measurement()["failure"]
    assert failure["kind"] == "hook"
    text = f"Plugin {PLUGIN} 2.1 failed in pytest_ckpt_before_measure: RuntimeError: the array is rebuilding, so "
    assert failure["message"].startswith(text)
    assert failure["message"] in page(run)
    assert run.events == []
    assert not (run.report / "launches" / "1" / "command").exists()
    assert "Traceback" in (run.report / "launches" / "1" / "hooks.log").read_text()
    assert "Traceback" not in run.text
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_requirement_of_a_plugin_can_be_waived_and_is_then_not_certified(runner: Runner) -> None:
    put_example(runner.home)
    (runner.home / "waivers.toml").write_text(
        '[[waive]]\nrequirement = "ACME-DROPPED"\nsubject = "*"\nreason = "We have no such client."\n'
        "expires = 2999-12-31\n"
    )
    run = runner.run(*QUICK, "--ckpt-drop-caches=auto", "--ckpt-waivers=waivers.toml", "pytest_ckpt.suites", SUITE)
    assert run.code == 0, run.text
    verdict = run.verdict("ACME-DROPPED")
    assert verdict["outcome"] == "waived"
    assert "We have no such client. It failed: Caches were emptied otherwise" in verdict["because"]
    assert any("ACME-DROPPED was waived" in reason for reason in run.document["grade_reasons"])
    assert "REHEARSAL for a cluster of 1 accelerator: not everything required was run" in run.text


@pytest.mark.thorough
def test_a_gate_table_may_relax_a_requirement_of_a_plugin_and_this_is_disclosed(runner: Runner) -> None:
    put_example(runner.home)
    (runner.home / "mine.toml").write_text(
        'name = "mine"\nextends = "speed-only"\n[requirements]\nACME-DROPPED = { gate = "advisory" }\n'
    )
    options = ("--ckpt-drop-caches=auto", "--ckpt-gate-table=mine.toml", "--ckpt-suite=performance")
    run = runner.run(*QUICK, *options, "pytest_ckpt.suites", SUITE)
    assert run.code == 0, run.text
    relaxed = "relaxed by the gate table 'mine': ACME-DROPPED is advisory (speed-only: required)."
    assert (run.verdict("ACME-DROPPED")["severity"], run.verdict("ACME-DROPPED")["outcome"]) == ("advisory", "failed")
    assert relaxed in run.document["disclosures"]
