"""Plugins that misbehave while a run goes on: it says so, and nothing that was decided is theirs to change."""

from __future__ import annotations

import json
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.front_door import CHECKOUT, REQUIRED, SUBJECT, FrontDoor, Run, opened_door, processes_of
from tests.support.selection import first_few
from tests.support.vendor_folder import QUICK

JUDGES = '''
from pytest_ckpt.vendors import Decision, ExtraRequirement, Section

def mutates(measurement, limits):
    """It would like to be faster."""
    measurement.stages.clear()
    for operation in measurement.operations:
        operation.phases.clear()
        object.__setattr__(operation, "seconds", 0.0)
    object.__setattr__(limits, "save_limit_seconds", 1e9)
    return Decision(outcome="met", because="It says so.")

def raises(measurement, limits):
    """It breaks."""
    return measurement.no_such_field

def skips(measurement, limits):
    """It gets out of it by a skip."""
    import pytest
    pytest.skip("no time")

def waives(measurement, limits):
    """It waives itself."""
    return Decision(outcome="waived", because="We would rather not.")

def measures_nan(measurement, limits):
    """It divides zero by zero."""
    return Decision(outcome="met", because="It is not a number.", measured=float("nan"), limit=1.0)

def says_yes(measurement, limits):
    """It returns True."""
    return True

def fails(measurement, limits):
    """It is never satisfied <script>alert(1)</script>."""
    return Decision(outcome="failed", because="Never <b>enough</b>.", measured=1, limit=2, detail=("<i>a</i>", "b"))

def pytest_ckpt_requirements():
    judges = (mutates, raises, skips, waives, measures_nan, says_yes, fails)
    return [
        ExtraRequirement(
            id="ACME-" + judge.__name__.upper().replace("_", "-"), title="A <title>", judge=judge, severity="advisory"
        )
        for judge in judges
    ]
'''
HOSTILE = (
    JUDGES
    + """
def pytest_ckpt_environment_facts():
    return {"<b>place</b>": "<script>alert(2)</script>", "api_token": "s3cr3t-value", "where": "http://me:pass@host/x"}

def pytest_ckpt_after_measure(measurement):
    measurement.stages.clear()
    measurement.cache.readings[0:]
    object.__setattr__(measurement, "operations", ())

def pytest_ckpt_report_sections(document):
    for verdict in document["requirements"]:
        verdict["outcome"] = "met"
    document["grade"] = "certified"
    document.clear()
    return [
        Section(
            title="<h1>Certified</h1>",
            paragraphs=["<script>alert(3)</script>", "left \\u202e right", "http://me:pass@host/x"],
            head=["<td>"],
            rows=[["<img src=x>"]],
        )
    ]
"""
)
TESTS = """
import pytest

{}
"""
ONE_TEST = """
@pytest.mark.requirement("ACME-{}")
def test_{}(subject, judge): judge(subject)
"""
NAMES = ("mutates", "raises", "skips", "waives", "measures_nan", "says_yes", "fails")


@pytest.fixture(scope="module")
def hostile(make_home: Callable[[str], Path]) -> Run:
    with opened_door(make_home("hostile")) as door:
        folder = door.home / "vendor"
        folder.mkdir()
        (folder / "conftest.py").write_text(HOSTILE)
        tests = "".join(ONE_TEST.format(n.upper().replace("_", "-"), n) for n in NAMES)
        (folder / "test_hostile.py").write_text(TESTS.format(tests))
        return door.run(*QUICK, "--pyargs", "pytest_ckpt.suites", "vendor")


def test_ours_are_decided_as_ever(hostile: Run) -> None:
    assert hostile.code == 0, hostile.text
    assert hostile.outcomes() == dict.fromkeys(REQUIRED, "met")
    assert hostile.document["grade"] == "rehearsal"


def test_what_was_measured_stays(hostile: Run) -> None:
    assert len(hostile.operations("save")) == len(hostile.operations("load")) == 2
    assert min(o["seconds"] for o in hostile.measurement()["operations"]) > 0
    assert {"saves", "loads", "hooks"} <= set(hostile.measurement()["stages"])
    assert hostile.measurement() == json.loads((hostile.report / "measurements" / f"{SUBJECT}+stream.json").read_text())


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        ("RAISES", "gave no decision: AttributeError: 'Measurement' object has no attribute 'no_such_field'."),
        ("SKIPS", "gave no decision: Skipped: no time."),
        ("WAIVES", "the outcome is 'waived', and one of met, failed, not run is expected."),
        ("MEASURES-NAN", "measured is nan, and a finite number or None is expected."),
        ("SAYS-YES", "it returned True, and a pytest_ckpt.vendors.Decision is expected."),
    ],
)
def test_a_judge_that_gives_no_decision_is_not_run_and_named(hostile: Run, judge: str, says: str) -> None:
    verdict = hostile.verdict(f"ACME-{judge}")
    assert verdict["outcome"] == "not run"
    assert verdict["because"].startswith("The judge of plugin vendor/conftest.py gave no decision: ")
    assert verdict["because"].endswith(says)


def test_a_judge_that_changes_what_it_sees_changes_a_copy(hostile: Run) -> None:
    assert hostile.verdict("ACME-MUTATES")["outcome"] == "met"
    assert hostile.document["cluster"]["save_limit_seconds"] < 1e9
    assert hostile.verdict("SAVE")["measured"] == max(o["seconds"] for o in hostile.operations("save"))


def test_html_is_text_everywhere(hostile: Run) -> None:
    page = (hostile.report / "certificate.html").read_text()
    for tag in ("<script", "<b>", "<i>", "<h1>Certified", "<img", "<title>\n"):
        assert tag not in page
    for shown in (
        "&lt;script&gt;alert(2)&lt;/script&gt;",
        "&lt;script&gt;alert(3)",
        "&lt;h1&gt;Certified",
        "A &lt;title",
    ):
        assert shown in page
    assert "\u202e" not in page
    assert hostile.verdict("ACME-FAILS")["detail"] == "<i>a</i>\nb"


def test_a_section_cannot_change_the_document(hostile: Run) -> None:
    (section,) = hostile.document["sections"]
    assert section["plugin"] == "vendor/conftest.py"
    assert section["title"] == "<h1>Certified</h1>"
    assert hostile.verdict("ACME-FAILS")["outcome"] == "failed"


def test_secrets_in_facts_and_sections_are_hidden(hostile: Run) -> None:
    (plugin,) = hostile.document["environment"]["plugins"]
    assert plugin["facts"]["api_token"] == "***"
    assert plugin["facts"]["where"] == "http://***@host/x"
    assert hostile.document["sections"][0]["paragraphs"][2] == "http://***@host/x"
    for file in filter(Path.is_file, hostile.report.rglob("*")):
        assert b"s3cr3t-value" not in file.read_bytes(), file


# --- around a launch -------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_hook_that_fails_afterwards_takes_what_was_met_but_not_what_failed(
    run_with: Callable[..., Run], workers: tuple[str, ...]
) -> None:
    """For a cluster so large that no storage saves in time."""
    run = run_with(
        """
        def pytest_ckpt_after_measure(measurement):
            raise RuntimeError("the counters of the array were reset")
        """,
        *workers,
        cluster=100_000_000,
    )
    assert run.code == 1, run.text
    assert run.outcomes() == {
        "SAVE": "failed", "LOAD": "failed", "INTEGRITY": "not run", "COLD": "not run", "DURABLE-CALLS": "not run"
    }  # fmt: skip
    message = (
        "Plugin vendor/conftest.py failed in pytest_ckpt_after_measure: RuntimeError: the counters of the array were "
        "reset (conftest.py, line 3)"
    )
    assert run.measurement()["failure"]["message"] == message
    assert run.verdict("INTEGRITY")["because"] == f"It was met, but {message}."
    assert len(run.operations("load")) == 2
    assert "Traceback" not in run.text
    assert "the counters of the array were reset" in (run.report / "launches" / "1" / "hooks.log").read_text()
    assert run.left_on_target == []
    assert run.launches == ["1"]


def test_a_hook_that_skips_skips_nothing(run_with: Callable[..., Run]) -> None:
    run = run_with(
        """
        import pytest

        def pytest_ckpt_before_measure():
            pytest.skip("not today")
        """
    )
    assert run.code == 8, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "not run")
    assert "failed in pytest_ckpt_before_measure: Skipped: not today" in run.measurement()["failure"]["message"]


@pytest.mark.thorough
@pytest.mark.parametrize("breaks", ["", "before", "after"])
def test_hooks_are_called_around_a_launch_with_commands_too(run_with: Callable[..., Run], breaks: str) -> None:
    """One that fails there ends UPGRADE alone."""
    run = run_with(
        f"""
        seen = []

        def pytest_ckpt_before_measure(subjects):
            seen.append("before")
            if len(seen) == 3 and {breaks!r} == "before":
                raise RuntimeError("the array is busy")

        def pytest_ckpt_after_measure(measurement):
            seen.append("after")
            if len(seen) == 4:
                assert measurement.patterns.upgrade
                if {breaks!r} == "after":
                    raise RuntimeError("the array is busy")
        """,
        "--ckpt-suite=performance,maintenance",
        "--ckpt-during=true",
    )
    assert run.verdict("SAVE")["outcome"] == "met"
    verdict = run.verdict("UPGRADE")
    if breaks:
        assert (verdict["outcome"], verdict["reason"]) == ("not run", "run ended"), verdict
        assert f"failed in pytest_ckpt_{breaks}_measure: RuntimeError: the array is busy" in verdict["because"]
        assert "the array is busy" in (run.report / "launches" / "2" / "hooks.log").read_text()
    else:
        assert verdict["outcome"] == "met", verdict
    assert run.left_on_target == []


def test_what_was_begun_before_can_be_ended_after_whatever_happened(door: FrontDoor) -> None:
    """Each plugin is called afterwards, also when another one failed before and after."""
    calls = door.home / "calls"
    for name, breaks in (("one", ""), ("two", "    raise ValueError('{} is ill')\n")):
        (door.home / f"{name}.py").write_text(
            f"def tell(words):\n    open({str(calls)!r}, 'a').write(f'{name} {{words}}\\n')\n"
            "def pytest_ckpt_before_measure(subjects):\n    tell('before ' + ','.join(subjects))\n"
            + breaks.format("before")
            + "def pytest_ckpt_after_measure(measurement):\n    tell('after ' + measurement.failure.kind)\n"
            + breaks.format("after")
        )
    path = {"PYTHONPATH": f"{door.home}:{CHECKOUT}"}
    run = door.run(*QUICK, "-p", "one", "-p", "two", environment=path)
    assert run.code == 8, run.text
    called = calls.read_text().splitlines()
    assert sorted(called) == sorted([*called[:-2], "one after hook", "two after hook"])
    assert f"two before {SUBJECT}/stream" in called
    assert "before is ill" in run.measurement()["failure"]["message"]
    assert "after is ill" in (run.report / "launches" / "1" / "hooks.log").read_text()


@pytest.mark.thorough
def test_ctrl_c_in_a_hook_leaves_a_report_and_no_measurement_to_rely_on(door: FrontDoor) -> None:
    folder = door.home / "vendor"
    folder.mkdir()
    waiting = door.home / "waiting"
    (folder / "conftest.py").write_text(
        "import time\nfrom pathlib import Path\n\ndef pytest_ckpt_after_measure():\n"
        f"    Path({str(waiting)!r}).touch()\n    time.sleep(600)\n"
    )
    started = door.start(*QUICK, "--pyargs", "pytest_ckpt.suites", "vendor")
    started.until(waiting.exists, "the hook waits")
    assert processes_of(started.run_id) == [], "no rank is left while a hook runs"
    started.process.send_signal(signal.SIGINT)
    run = started.finish()
    assert run.code == 2, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "not run")
    assert run.measurement()["failure"]["kind"] == "interrupted"
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_worker_that_dies_in_a_hook_leaves_nothing_to_judge(door: FrontDoor) -> None:
    """What the plugin has not seen whole is measured again by the next worker, which meets the same plugin."""
    folder = door.home / "vendor"
    folder.mkdir()
    once = door.home / "once"
    (folder / "conftest.py").write_text(
        "import os\nfrom pathlib import Path\n\ndef pytest_ckpt_after_measure():\n"
        f"    once = Path({str(once)!r})\n    if not once.exists():\n        once.touch()\n        os._exit(1)\n"
    )
    run = door.run(*QUICK, "-n", "1", "--pyargs", "pytest_ckpt.suites", "vendor")
    assert run.code == 1, run.text
    assert "crashed while running" in run.text
    assert run.launches == ["1", "2"]
    assert run.measurement()["launch"] == "launches/2"
    assert run.left_on_target == []


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_the_power_is_cut_by_the_command_of_a_hook(door: FrontDoor, mount, workers: tuple[str, ...]) -> None:
    place = mount("ext4", 400)
    folder = door.home / "vendor"
    folder.mkdir()
    (folder / "conftest.py").write_text(textwrap.dedent(
        '''
        import shlex
        import sys

        def pytest_ckpt_power_cut(settings):
            return shlex.join([sys.executable, "-m", "pytest_ckpt.targets.posix.power_cut", settings.target])
        '''
    ))  # fmt: skip
    gates = ("--ckpt-gates=posix-local", "--ckpt-suite=conformance")
    run = door.run(*QUICK, *gates, *workers, "-k", "survive", "pytest_ckpt.suites", "vendor", target=place)
    verdict = run.verdict("DURABLE", "power-cut")
    assert (verdict["outcome"], verdict["severity"]) == ("met", "required"), verdict
    assert any("--ckpt-power-cut" in s and "from hook of vendor/conftest.py" in s for s in run.document["disclosures"])


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "says"),
    first_few(
        [
            ("raise ValueError('no printer')", "failed in pytest_ckpt_report_sections: ValueError: no printer"),
            ("raise SystemExit(3)", "failed in pytest_ckpt_report_sections: SystemExit: 3"),
            ("return '<p>all well</p>'", "'<p>all well</p>' was returned, and a list of sections is expected"),
            (
                "return [Section(title='T', paragraphs='one')]",
                "the paragraphs of the section 'T' are 'one', and a list",
            ),
            ("return [Section(title='T', rows=[[1]])]", "row 1 of the section 'T' are [1], and a list of texts"),
            (
                "return [Section(title='T', head=['a', 'b'], rows=[['x']])]",
                "row 1 of the section 'T' has 1 cells, and 2",
            ),
        ],
        1,
    ),
)
def test_sections_that_fail_cost_only_themselves(run_with: Callable[..., Run], body: str, says: str) -> None:
    run = run_with(
        f"""
        from pytest_ckpt.vendors import Section

        def pytest_ckpt_report_sections(document):
            {body}
        """
    )
    assert run.code == 0, run.text
    (section,) = run.document["sections"]
    assert section["title"] == "This plugin's sections could not be written"
    assert says in section["paragraphs"][0]
    assert "This plugin&#39;s sections could not be written" in (run.report / "certificate.html").read_text()


# --- workers ---------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        ("if 'PYTEST_XDIST_WORKER' not in os.environ:\n    def pytest_ckpt_before_measure(): pass\n",
         "A worker of pytest-xdist has not the plugins of the run: vendor/conftest.py (pytest_ckpt_before_measure)"),
        ("def pytest_ckpt_requirements():\n    if 'PYTEST_XDIST_WORKER' in os.environ:\n        1 / 0\n    return []\n",
         "failed in pytest_ckpt_requirements: ZeroDivisionError"),
        (JUDGES + "\n_all = pytest_ckpt_requirements\ndef pytest_ckpt_requirements():\n"
         "    return [] if 'PYTEST_XDIST_WORKER' in os.environ else _all()\n",
         "A worker of pytest-xdist has other requirements of plugins than the run."),
    ],
)  # fmt: skip
def test_workers_without_the_plugins_of_the_run_run_nothing(
    run_with: Callable[..., Run], plugin: str, says: str
) -> None:
    run = run_with("import os\n" + plugin, "-n", "2")
    assert run.code == 1, run.text
    assert says in run.text
    assert "INTERNALERROR" not in run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "not run")
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_test_that_judges_what_no_plugin_asks_for_fails_the_collection_of_a_worker(door: FrontDoor) -> None:
    folder = door.home / "vendor"
    folder.mkdir()
    (folder / "test_vendor.py").write_text(TESTS.format(ONE_TEST.format("NOBODY", "it")))
    run = door.run(*QUICK, "-n", "1", "pytest_ckpt.suites", "vendor")
    assert run.code == 1, run.text
    assert "vendor/test_vendor.py::test_it judges 'ACME-NOBODY', which is no requirement of this run" in run.text
    assert "INTERNALERROR" not in run.text


@pytest.mark.thorough
def test_a_plugin_that_comes_when_the_run_is_open_stops_workers_too(door: FrontDoor) -> None:
    folder = door.home / "vendor" / "below"
    folder.mkdir(parents=True)
    (folder / "conftest.py").write_text("def pytest_ckpt_before_measure(): raise ValueError('nobody asked')\n")
    run = door.run(*QUICK, "-n", "2", "pytest_ckpt.suites", "vendor")
    assert run.code == 1, run.text
    assert "Plugin vendor/below/conftest.py comes too late for pytest_ckpt_before_measure" in run.text
    assert "INTERNALERROR" not in run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "not run")
    assert run.document["measurements"] == []


def test_where_nothing_is_measured_a_plugin_s_requirement_is_not_run(door: FrontDoor) -> None:
    folder = door.home / "vendor"
    folder.mkdir()
    (folder / "conftest.py").write_text(JUDGES.replace('"advisory"', '"required"'))
    (folder / "test_vendor.py").write_text(TESTS.format(ONE_TEST.format("MUTATES", "it")))
    options = ("--ckpt-gates=posix-local", "--ckpt-suite=conformance", "-k", "vendor or a_full_volume")
    run = door.run(*QUICK, *options, "pytest_ckpt.suites", "vendor")
    assert run.code == 8, run.text
    verdict = run.verdict("ACME-MUTATES")
    assert (verdict["outcome"], verdict["severity"]) == ("not run", "required")
    assert verdict["because"] == "Performance suite not selected (--ckpt-suite)."
    assert run.document["measurements"] == []


@pytest.mark.thorough
def test_a_plugin_may_keep_to_the_controller_what_only_the_controller_asks_for(run_with: Callable[..., Run]) -> None:
    run = run_with(
        """
        class OfTheController:
            def pytest_ckpt_environment_facts(self):
                return {"seen by": "the controller"}

        def pytest_configure(config):
            if not hasattr(config, "workerinput"):
                config.pluginmanager.register(OfTheController())
                config.pluginmanager.register(OfTheController())
        """,
        "-n",
        "2",
    )
    assert run.code == 0, run.text
    plugins = run.document["environment"]["plugins"]
    assert sorted(p["name"] for p in plugins) == ["OfTheController", "OfTheController (2)"]
    assert [p["facts"] for p in plugins] == [{"seen by": "the controller"}] * 2


def test_workers_use_what_the_controller_was_told(run_with: Callable[..., Run]) -> None:
    """A hook that would answer otherwise in a worker is not asked there."""
    run = run_with(
        """
        import os

        def pytest_ckpt_launch_command():
            if "PYTEST_XDIST_WORKER" in os.environ:
                return "no_such_launcher"
            import shlex, sys
            from pathlib import Path
            return shlex.join([str(Path(sys.executable).with_name("mpiexec")), "-x", "ACME=1"])
        """,
        "-n",
        "2",
    )
    assert run.code == 0, run.text
    assert "-x ACME=1" in (run.report / "launches" / "1" / "command").read_text()
