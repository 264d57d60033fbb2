"""Adds one entry of each kind (requirement, check, option, …) to a copy of the project.

The insertions follow the steps in ARCHITECTURE.md.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

from tests.support import dump_engine


@dataclass(frozen=True, kw_only=True)
class NewEntry:
    """The insertions that add one entry, and the pages that must be generated again.

    An insertion is (file, anchor, new text). The new text is inserted before the anchor. If the anchor is empty, the
    new text is appended to the file, which is created if necessary.
    """

    insertions: tuple[tuple[str, str, str], ...]
    pages: tuple[str, ...] = ()


# The engine that other tests use as an engine of another package, here as a module of this package.
ENGINE = f'''"""A tensor after the other, one write a file."""

from __future__ import annotations

from pytest_ckpt.ranks.content import compare
from pytest_ckpt.ranks.content import TensorKey
from pytest_ckpt.ranks.engines.protocol import Comparison, LocalFault


{inspect.getsource(dump_engine.DumpEngine)}

{inspect.getsource(dump_engine.make)}'''

AGAIN = '''"""The newest checkpoint is loaded again."""

from __future__ import annotations

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.measurement import LoadedAgain
from pytest_ckpt.ranks.scenarios.context import ScenarioContext


def measure(at: ScenarioContext) -> None:
    """Load the newest checkpoint, cold."""
    number, engine = at.own.newest_full, at.engine()
    at.drop([at.do.files(number)])
    loaded = at.do.load(engine, at.cache, 1, number, counted=False, scenario="again")
    engine.release()
    if loaded.operation:
        seconds = loaded.operation.seconds
        at.do.step("again", 1, seconds)
        at.do.send(PatternMeasured(subject=at.do.subject, name="again", found=LoadedAgain(seconds=seconds)))
'''

NEW_ENTRIES = {
    "requirement": NewEntry(
        insertions=(
            (
                "suites/test_performance.py",
                "",
                '''

@requirement(
    "TOTAL",
    title="All saves together meet the limit",
    severity="advisory",
    maximum=1.25,
    units=("s",),
    figure="the time of all saves",
    limit="{maximum:g} x the save limit, a save",
    source="made up for a test",
    next_step="Look which save took longest.",
    help="SAVE or LOAD: a limit was missed",
)
def test_all_saves_together_meet_the_budget(saves: Operations, limits: ClusterLimits, maximum: float) -> Decision:
    """All saves of the run together take at most 1.25 times their limit.

    Made up for a test. Advisory: no published limit exists.
    """
    limit = maximum * limits.save_limit_seconds * len(saves.all) * saves.of.bytes / saves.of.full_bytes
    seconds = sum(o.seconds for o in saves.all)
    because = f"All saves together took {format_seconds(seconds)} of {format_seconds(limit)}."
    return measured_as("met" if seconds <= limit else "over limit", seconds, limit, "s", because, ())
''',
            ),
            (
                "tests/support/golden_cases.py",
                '    "COLD": {\n',
                """    "TOTAL": {
        "met": measurement(),
        "over the budget": measurement(saves=(1.0, 1e9)),
    },
""",
            ),
        ),
        pages=("requirements_page",),
    ),
    "check of a file system": NewEntry(
        insertions=(
            (
                "pytest_ckpt/facts/checks.py",
                """    Check(
        requirement="CAPABILITIES",
        subject="extras",
""",
                """    Check(
        requirement="CAPABILITIES",
        subject="modes",
        code="capabilities:modes",
        relies="made up for a test",
        how="Permissions of files are set; they are there afterwards.",
    ),
""",
            ),
            (
                "pytest_ckpt/conformance/posix/capabilities.py",
                "def extras(",
                '''def modes(context: CheckContext, findings: Findings) -> None:
    """Set the permissions of files and look at them."""
    for number, mode in enumerate((0o600, 0o640, 0o755)):
        path = context.directory / f"file-{number}"
        path.touch()
        context.report_call("chmod", str(path))
        path.chmod(mode)
        findings.trials += 1
        seen = path.stat().st_mode & 0o777
        if seen != mode:
            findings.wrong("permissions lost", where=str(path), seen=f"{seen:o}", expected=f"{mode:o}")


''',
            ),
            (
                "tests/support/targets/fuse_faults_errors.py",
                "class LockAlwaysFails(",
                '''class ModesAreLost(
    Fault,
    name="permissions are lost",
    fails="CAPABILITIES.modes",
    expected_text={"CAPABILITIES.modes": "permissions lost"},
):
    """Everybody may read and write every file, whatever its permissions were set to."""

    def attributes(self, proceed, call, node):
        known = proceed(call, node)
        self.hit()
        return known._replace(mode=known.mode | 0o666)


''',
            ),
        ),
        pages=("conformance_page", "requirements_page"),
    ),
    "check of an object store": NewEntry(
        insertions=(
            (
                "pytest_ckpt/facts/checks.py",
                """    Check(
        requirement="OBJECT-LARGE",
""",
                """    Check(
        requirement="OBJECT-LIST",
        subject="empty",
        package="objects",
        code="visible:list_empty",
        relies="made up for a test",
        how="A listing of a prefix that no key has is empty.",
    ),
""",
            ),
            (
                "pytest_ckpt/conformance/objects/visible.py",
                "def put_all(",
                '''def list_empty(context: ObjectContext, findings: Findings) -> None:
    """List a prefix that no object has."""
    here = context.here
    here.put("there", b"x").needed("an object")
    findings.trials += 1
    for name, _, _ in here.listed("empty/"):
        findings.wrong("object of another prefix", where=here.url("empty/"), seen=name, expected="none")


''',
            ),
            (
                "tests/support/targets/object_faults_data.py",
                "class OnePage(",
                '''class NothingIsAll(
    Store, fault="empty prefixes list all", fails="LIST.empty", expected_text="object of another prefix"
):
    """A listing that would be empty has every object."""

    def keys(self, bucket: str, prefix: str) -> list[tuple[str, Object]]:
        return super().keys(bucket, prefix) or super().keys(bucket, "")


''',
            ),
        ),
        pages=("conformance_page", "requirements_page"),
    ),
    "pattern": NewEntry(
        insertions=(
            (
                "pytest_ckpt/sizing/patterns.py",
                """        PatternRow(
            name="endurance",
""",
                """        PatternRow(
            name="again",
            label="load that is made again",
            scenario=f"{_IN}.again:measure",
            is_requested=_contended,
            amount=lambda planned, settings, target: Amount(1, planned.layout.bytes, _load(planned)),
        ),
""",
            ),
            ("pytest_ckpt/ranks/scenarios/again.py", "", AGAIN),
            (
                "pytest_ckpt/facts/measurement.py",
                "@dataclass(frozen=True, kw_only=True, slots=True)\nclass Patterns:",
                '''@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedAgain:
    """A load that was made again, in seconds."""

    seconds: float


''',
            ),
            (
                "pytest_ckpt/facts/measurement.py",
                "    scaling: Scaling | None = None\n",
                "    again: LoadedAgain | None = None\n",
            ),
            (
                "suites/test_contention.py",
                "",
                '''

@requirement(
    "AGAIN",
    title="A load that is made again meets the limit",
    severity="advisory",
    units=("s",),
    figure="the time of the load",
    limit="the load limit of the cluster",
    source="made up for a test",
    requested_by=lambda settings: settings.includes_contention,
    next_step="Look which phase took longest.",
    help="Another kind of load is too slow",
)
def test_a_load_that_is_made_again_meets_the_limit(
    again: LoadedAgain, measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """A load that is made again ends within the load limit.

    Made up for a test. Advisory: no published limit exists.
    """
    limit = limits.load_limit_seconds * measurement.share
    because = f"The load took {format_seconds(again.seconds)} of {format_seconds(limit)}."
    return measured_as("met" if again.seconds <= limit else "over limit", again.seconds, limit, "s", because, ())
''',
            ),
            (
                "tests/support/golden_cases_of_patterns.py",
                "from pytest_ckpt.sizing.limits import StatedLimits\n",
                "from pytest_ckpt.facts.measurement import LoadedAgain\n",
            ),
            (
                "tests/support/golden_cases_of_patterns.py",
                '    "STORM": pattern_cases("storm")',
                """    "AGAIN": {
        "met": measurement(patterns=Patterns(again=LoadedAgain(seconds=1.0))),
        "too slow": measurement(patterns=Patterns(again=LoadedAgain(seconds=1e9))),
    },
""",
            ),
            ("docs/results.md", "| `endurance` |", "| `again` | | a load that was made again: `seconds` |\n"),
        ),
        pages=("requirements_page",),
    ),
    "model": NewEntry(
        insertions=(
            (
                "pytest_ckpt/sizing/architectures.py",
                '    )\n}\n"""The models',
                """        Model(
            name="toy-2b",
            layers=16,
            hidden=2048,
            feed_forward=8192,
            vocabulary=128256,
            heads=32,
            key_value_heads=8,
            tensor_parallel=2,
            pipeline_parallel=1,
            zero_stage=3,
            processes=8,
        ),
""",
            ),
        ),
    ),
    "engine": NewEntry(
        insertions=(
            (
                "pytest_ckpt/facts/engines.py",
                ')\n"""The built-in engines; the first is the default."""',
                """    EngineSpec(
        name="plain",
        help="a tensor after the other, one write a file",
        make="pytest_ckpt.ranks.engines.plain:make",
        memory=MemoryRule(process_bytes=300_000_000, state_share=2.0),
    ),
""",
            ),
            ("pytest_ckpt/ranks/engines/plain.py", "", ENGINE),
        ),
        pages=("options_page",),
    ),
    "option": NewEntry(
        insertions=(
            (
                "pytest_ckpt/facts/options.py",
                ')  # fmt: skip\n"""All options,',
                """    Option(key="patience", group="checks", metavar="DURATION", default="5s", parse="read_seconds",
           example="7s", field="patience_seconds",
           help="how long a test has patience"),
""",
            ),
            ("pytest_ckpt/facts/settings.py", "    origins: tuple[Origin", "    patience_seconds: float\n"),
        ),
        pages=("options_page",),
    ),
}


def add(kind: str, tree: Path) -> None:
    """Add an entry of a kind to a copy of the project. Generated pages are not changed."""
    for name, before, text in NEW_ENTRIES[kind].insertions:
        file = tree / name
        found = file.read_text() if file.exists() else ""
        if before:
            assert found.count(before) == 1, f"{name}: {before!r}"
            found = found.replace(before, text + before)
        else:
            found += text
        file.write_text(found)
