"""A package imports only packages below it in the table of ARCHITECTURE.md.

Imports are read from syntax trees, including imports in functions.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "pytest_ckpt"

ARCHITECTURE = (PACKAGE.parent / "ARCHITECTURE.md").read_text()


def packages_of(page):
    """Return the package names in the table of a Markdown page, from top to bottom."""
    table = page.partition("\n## Packages\n")[2].partition("\n## ")[0]
    return tuple(re.findall(r"^\| `([a-z_]+)(?:/|\.py)` \|", table, re.MULTILINE))


# A module may import from its own package and from those below it.
PACKAGES = (*packages_of(ARCHITECTURE), "__init__")
# Uses of dict[str, Any] and Mapping[str, Any], by package; fewer are welcome. A document in a file is a plain table:
# its JSON schema checks it first, and a class would repeat the schema. `report/` writes pages from one, `evidence/`
# reads untrusted ones, `published/` reads and writes those of DLIO, `analysis/` compares several. User input is plain
# in `config/` until it is parsed; in `conformance/` a message contains what its one action needs. `facts/`, `sizing/`,
# `judging/` and `run/` have one if a dataclass goes to a file (`to_plain`) or its document is passed on. The rest are
# single uses: arguments by name, the file that names the owner of an area, questions to a child process and answers.
MAXIMUM_PLAIN_TABLES = {
    "analysis": 38, "cli": 5, "conformance": 24, "config": 24, "evidence": 66, "facts": 16, "grading": 8, "judging": 2,
    "launching": 1, "plugin": 4, "published": 28, "ranks": 4, "report": 76, "run": 11, "sizing": 4, "support": 2,
    "targets": 7, "vendors": 1,
}  # fmt: skip

# Libraries whose import is slow or has effects, and the modules that may import them.
OWNERS = {
    "mpi4py": ("ranks/process/mpi_group.py",),
    "torch": ("ranks/engines/", "config/library_tensors.py"),
    "transformers": ("config/library_tensors.py",),
    "safetensors": ("ranks/engines/safetensors.py",),
    "numpy": ("ranks/", "analysis/saturation.py", "analysis/training_runs.py"),
    "pytest": ("plugin/",),
    "_pytest": (),
    "pytest_benchmark": ("plugin/benchmark_bridge.py",),
    "xdist": (),
    "jinja2": ("report/html.py",),
    "markupsafe": ("report/html.py", "report/certificate_charts.py"),
    "jsonschema": (),
    "msgspec": ("facts/written.py",),
    "weasyprint": ("report/pdf.py",),
    "cryptography": ("evidence/signing.py",),
    "ruamel": ("published/directory.py", "cli/export.py"),
    "botocore": ("targets/objects/authentication.py", "ranks/engines/dcp_fsspec.py"),
    "s3fs": ("ranks/engines/dcp_fsspec.py",),
    "aiohttp": ("ranks/engines/dcp_fsspec.py",),
    "s3torchconnector": ("ranks/engines/dcp_s3torchconnector.py",),
    "s3torchconnectorclient": ("ranks/engines/dcp_s3torchconnector.py",),
    "google": ("targets/objects/google.py",),
    "prometheus_client": ("report/live_metrics.py",),
    "opentelemetry": ("report/live_metrics.py", "run/live_metrics.py"),
    "moto": (),
    "psutil": ("targets/",),
}


# The packages that turn facts into verdicts. In a checkout, suites/ is at the top and linked into the package.
DECIDE = frozenset(("grading", "suites", "judging"))

PATHS = [p.relative_to(PACKAGE) for p in sorted({*PACKAGE.rglob("*.py"), *PACKAGE.glob("suites/*.py")})]


@cache
def tree_of(path):
    return ast.parse((PACKAGE / path).read_text())


def trees():
    """Return (path, syntax tree) of every module of the package."""
    return [(path, tree_of(path)) for path in PATHS]


@cache
def imported(tree, path, *, at_import_time=False):
    """Return the dotted names that a module imports. With ``at_import_time``, return only its top-level imports."""
    nodes = top_level(tree.body) if at_import_time else ast.walk(tree)
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            names |= {f"{node.module}.{alias.name}" if is_module(node.module, alias.name) else node.module
                      for alias in node.names}  # fmt: skip
    return frozenset(names)


def top_level(body):
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node


def is_module(package, name):
    if package.split(".")[0] != PACKAGE.name:
        return False
    place = PACKAGE.parent.joinpath(*package.split("."), name)
    return place.with_suffix(".py").exists() or place.is_dir()


def project_paths(names):
    """Yield the path of each project module among the dotted ``names``."""
    for name in names:
        first, *rest = name.split(".")
        if first == PACKAGE.name:
            place = Path(*rest) if rest else Path("__init__")
            yield place.with_suffix(".py") if (PACKAGE / place.with_suffix(".py")).exists() else place / "__init__.py"


def package_of(path):
    return path.with_suffix("").parts[0]


def test_the_page_lists_the_packages_from_top_to_bottom():
    assert (PACKAGES[0], PACKAGES[-2]) == ("plugin", "support")
    assert packages_of(
        "## A\n\n\n## Packages\n\n| package |\n|---|\n| `a/` | x |\n| `b.py` | `c/` |\n\n## B\n| `d/` |"
    ) == (
        "a",
        "b",
    )


def test_no_package_has_more_plain_tables_than_allowed():
    """The number of plain dictionary types, such as ``dict[str, Any]``, is limited in each package.

    Tools cannot check the fields of a plain dictionary, so data with known fields should be a dataclass.
    """
    found = Counter(
        package_of(path)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and ast.unparse(node) in {"dict[str, Any]", "Mapping[str, Any]"}
    )
    assert found.keys() <= MAXIMUM_PLAIN_TABLES.keys()
    assert not {room: count for room, count in found.items() if count > MAXIMUM_PLAIN_TABLES[room]}, (
        "make it a dataclass"
    )


def test_the_page_names_the_packages_with_most_plain_tables():
    found = ARCHITECTURE.partition("`dict[str, Any]`")[2].partition("\n\n")[0]
    for room in [room for room, maximum in MAXIMUM_PLAIN_TABLES.items() if maximum > 10]:
        assert f"`{room}/`" in found, room


def test_every_module_is_in_exactly_one_package():
    assert {package_of(path) for path in PATHS} == set(PACKAGES)
    assert len(set(PACKAGES)) == len(PACKAGES)


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_imports_point_downward(path):
    floor = PACKAGES.index(package_of(path))
    upward = [
        str(other)
        for other in project_paths(imported(tree_of(path), path))
        if PACKAGES.index(package_of(other)) < floor
    ]
    assert not upward, f"{path} imports from above: {upward}"


def test_no_module_needs_itself_to_be_imported():
    graph = {path: set(project_paths(imported(tree, path, at_import_time=True))) - {path} for path, tree in trees()}
    while leaves := {path for path, needs in graph.items() if not needs}:
        graph = {path: needs - leaves for path, needs in graph.items() if path not in leaves}
    assert not graph, f"these import each other: {sorted(map(str, graph))}"


@pytest.mark.parametrize("library", OWNERS)
def test_a_library_is_imported_only_where_it_belongs(library):
    users = {path.as_posix() for path, tree in trees()
             if any(name.split(".")[0] == library for name in imported(tree, path))}  # fmt: skip
    strangers = {user for user in users if not user.startswith(OWNERS[library])} if OWNERS[library] else users
    assert not strangers, f"{library} belongs to {OWNERS[library]}"


def test_every_library_has_an_owner():
    known = set(sys.stdlib_module_names) | {PACKAGE.name} | set(OWNERS)
    found = {name.split(".")[0] for path, tree in trees() for name in imported(tree, path)}
    assert found <= known


@pytest.mark.parametrize("path", [p for p in PATHS if p.parts[0] in {*DECIDE, "sizing", "analysis"}
                                  or p.name == "vendors.py"], ids=str)  # fmt: skip
def test_packages_that_decide_are_pure(path):
    """Modules that evaluate, plan or analyse use no file, process, clock or randomness, so results are reproducible."""
    impure = {"os", "subprocess", "time", "random", "secrets", "socket", "shutil", "tempfile", "datetime", "pathlib"}
    if path.as_posix() == "analysis/statistics.py":
        impure -= {"random"}  # its bootstrap uses a fixed seed, so the answer is always the same
    assert not impure & {name.split(".")[0] for name in imported(tree_of(path), path)}


def test_judging_needs_neither_ranks_nor_targets_nor_checks():
    """The evaluating packages import no code of ranks, targets or checks, so a repeated evaluation needs only files."""
    for path, tree in trees():
        if package_of(path) in DECIDE:
            assert not {package_of(other) for other in project_paths(imported(tree, path))} & {
                "conformance",
                "ranks",
                "targets",
            }


# Calls that open, create, change or inspect a file by its name: of a path or of os, shutil, tempfile, io or mmap.
BY_NAME = {
    "open", "mkdir", "makedirs", "rmdir", "unlink", "remove", "rename", "replace", "stat", "lstat", "statvfs",
    "scandir", "iterdir", "listdir", "glob", "rglob", "exists", "is_dir", "is_file", "read_bytes", "write_bytes",
    "write_text", "read_text", "truncate", "symlink_to", "hardlink_to", "touch", "rmtree", "mkdtemp", "fsync",
    "fallocate", "posix_fadvise", "pwrite", "preadv", "FileIO",
}  # fmt: skip
# Methods of these names that do not belong to files: of stores, texts and records. Also calls of a library that itself
# writes into a draft's location, which a rank only watches.
NOT_FILES = {
    ("open", "store"), ("open", "self._store"), ("replace", "dataclasses"), ("replace", "name"),
    ("mkdir", "super()"), ("exists", "super()"), ("rename", "super()"),
    ("mkdir", "self._inner"), ("exists", "self._inner"), ("rename", "self._inner"),
}  # fmt: skip


def calls_by_name(tree):
    """Yield (function, object, first argument) as source text, for every call that may access a file by name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in BY_NAME:
            yield node.func.attr, ast.unparse(node.func.value), ast.unparse(node.args[0]) if node.args else ""
        elif isinstance(node.func, ast.Name) and node.func.id in {"open", "FileIO"}:
            yield node.func.id, "", ast.unparse(node.args[0]) if node.args else ""


@pytest.mark.parametrize("path", [p for p in PATHS if p.parts[0] == "ranks"], ids=str)
def test_ranks_touch_no_file_but_those_of_the_kernel(path):
    """Ranks access the target only through a store. They read other files only in /proc and /sys."""
    touched = [
        (call, on, argument)
        for call, on, argument in calls_by_name(tree_of(path))
        if (call, on) not in NOT_FILES
        and not re.search(r"Path\('/(proc|sys)/|Path\((limit|used)\)", on)
        and not (on == "os" and argument.startswith("'/proc/"))
    ]
    assert not touched, f"{path} names files: {touched}"


@pytest.mark.parametrize("path", [p for p in PATHS if p.parts[0] not in {"targets", "conformance"}], ids=str)
def test_no_module_builds_a_path_of_the_target(path):
    """Only the packages targets and conformance build paths from the location of an area (the directory of a run)."""
    built = [
        ast.unparse(node)
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and is_place(node.left))
        or (isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"Path", "join", "open"}
            and any(is_place(argument) for argument in node.args))
    ]  # fmt: skip
    assert not built, f"{path} builds paths of the target: {built}"
    names = {name for name in imported(tree_of(path), path) if name.startswith("pytest_ckpt.targets.")}
    if path.parts[0] == "ranks":
        # A file object over any source does not name a target either.
        protocols = {f"pytest_ckpt.targets.{name}" for name in ("protocol", "without_paths")}
        assert names <= protocols, "ranks know targets by their protocols alone"


def is_place(node):
    """Return whether an expression contains an attribute ``location``, as of an area or a target."""
    return any(isinstance(part, ast.Attribute) and part.attr == "location" for part in ast.walk(node))


def test_the_catalogue_alone_imports_the_suites():
    users = {path.as_posix() for path, tree in trees()
             if any(name.startswith("pytest_ckpt.suites") for name in imported(tree, path))}  # fmt: skip
    assert users == {"grading/catalogue.py"}


def test_the_plugin_imports_next_to_nothing_when_it_is_loaded():
    """Loading the plugin imports only a few small modules, because every pytest run loads the plugin.

    Another test measures the imports at run time.
    """
    seen, left = set(), [Path("plugin/session_hooks.py")]
    while left:
        path = left.pop()
        if path not in seen:
            seen.add(path)
            left.extend(project_paths(imported(tree_of(path), path, at_import_time=True)))
    allowed = {
        "plugin/session_hooks",
        "plugin/stash",
        "facts/options",
        "facts/engines",
        "facts/file_rules",
        "facts/gate_tables",
        "facts/strategies",
    }
    assert {p.with_suffix("").as_posix() for p in seen} <= allowed


def test_no_judge_matches_a_text_with_a_regular_expression():
    """The evaluating packages do not import ``re``. They receive typed facts and do not search texts."""
    judging = {path: tree for path, tree in trees() if path.parts[0] in DECIDE}
    assert judging
    assert {str(path) for path, tree in judging.items() if "re" in imported(tree, path)} == set()
