"""The wheel is complete and works in any directory. A checkout works without being installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support import CHECKOUT

TOP = ("pyproject.toml", "README.md", "LICENSE", "conftest.py", "pytest_ckpt", "suites", "templates")
# For a cluster so small that any disk is fast enough.
SMALLEST = ("--cluster=8", "--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-ranks=2",
            "--ckpt-profile=smoke", "--ckpt-operations=2", "--ckpt-engine=stream")  # fmt: skip
# 0: met; 1 or 8: failed or not run, because the temporary directory is in memory, which is never cold.
PASSED_BUT_FOR_COLD = {0, 1, 8}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the checkout. Its directory ``tests`` contains only one small test."""
    copy = tmp_path_factory.mktemp("a copy") / "of the checkout"
    copy.mkdir()
    for name in TOP:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(CHECKOUT / name, copy / name)
    (copy / "tests").mkdir()
    (copy / "tests" / "test_one.py").write_text("def test_one(): pass\n")
    return copy


@pytest.fixture(scope="module")
def wheel(checkout, tmp_path_factory):
    source, out = tmp_path_factory.mktemp("source") / "tree", tmp_path_factory.mktemp("wheel")
    shutil.copytree(checkout, source)
    build = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps", "--no-index",
             "--no-build-isolation", "--wheel-dir", str(out), str(source)]  # fmt: skip
    run(build, cwd=out)
    (file,) = out.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """A directory with links to all installed libraries except the plugin and editable installations."""
    view = tmp_path_factory.mktemp("libraries")
    for kind in ("purelib", "platlib"):
        for entry in Path(sysconfig.get_path(kind)).iterdir():
            ours = entry.name.startswith(("pytest_ckpt", "__editable__", "__pycache__"))
            if not ours and not (view / entry.name).exists():
                (view / entry.name).symlink_to(entry)
    return view


@pytest.fixture
def new_environment(libraries, tmp_path):
    """Return a function that creates a virtual environment and returns the path of its Python.

    The environment contains all libraries. It contains the plugin only if the function is called with the wheel.
    """

    def make(file=None):
        home = tmp_path / "environment"
        venv.create(home, with_pip=False, symlinks=True)
        python = home / "bin" / "python"
        site = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
        (site / "libraries.pth").write_text(f"{libraries}\n")
        if file:
            run([sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install",
                 "--quiet", "--no-deps", "--no-index", str(file)])  # fmt: skip
        return python

    return make


@pytest.fixture
def directory(tmp_path):
    """An empty directory with a space in its name. The target is next to it."""
    empty = tmp_path / "an empty directory"
    empty.mkdir()
    (tmp_path / "mnt array").mkdir()
    return empty


def run(command, *, cwd=None, exit_codes=(0,)):
    """Run a command without the tests' variables and with mpiexec in PATH. Check its exit code; return its output."""
    left_out = ("PYTHON", "PYTEST", "VIRTUAL_ENV", "COV_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in exit_codes, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_suites_templates_schema_styles_and_types(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    packaged = {name for name in names if ".dist-info/" not in name}
    expected = {f"pytest_ckpt/{p.relative_to(CHECKOUT / 'pytest_ckpt')}" for p in sources("pytest_ckpt")}
    expected |= {f"pytest_ckpt/suites/{p.name}" for p in sources("suites")}
    expected |= {f"pytest_ckpt/templates/{p.relative_to(CHECKOUT / 'templates')}" for p in sources("templates")}
    assert packaged == expected
    for name in ("py.typed", "suites/test_performance.py", "templates/certificate.html.j2",
                 "templates/certificate.css"):  # fmt: skip
        assert f"pytest_ckpt/{name}" in names


def sources(directory):
    found = (p for p in (CHECKOUT / directory).rglob("*") if p.is_file())
    return [p for p in found if "__pycache__" not in p.parts and not p.name.startswith(".")]


def test_the_wheel_names_its_entry_points_and_its_license(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("entry_points.txt"))
        entry_points = archive.read(name).decode()
        (name,) = (n for n in archive.namelist() if n.endswith("METADATA"))
        metadata = archive.read(name).decode()
    assert "pytest_ckpt.plugin.session_hooks = pytest_ckpt.plugin.session_hooks" in entry_points
    assert "pytest-ckpt = pytest_ckpt.cli.main:main" in entry_points
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Dist: torch" in metadata


def test_the_wheel_runs_from_an_empty_directory(wheel, new_environment, directory):
    python = new_environment(wheel)
    where = "import pytest_ckpt; print(pytest_ckpt.__file__)"
    assert str(python.parents[1]) in run([python, "-c", where], cwd=directory)
    assert "cluster of 16,000" in run([python.with_name("pytest-ckpt"), "plan", "--cluster=16000"], cwd=directory)
    target = directory.with_name("mnt array")
    run([python, "-m", "pytest", f"--ckpt-target={target}", *SMALLEST], cwd=directory, exit_codes=PASSED_BUT_FOR_COLD)
    is_report_of_a_rehearsal(directory)
    assert not any(target.iterdir())


@pytest.mark.thorough
def test_a_checkout_that_is_not_installed_runs(checkout, new_environment, directory):
    """pytest runs in a checkout that is not installed, because the checkout's conftest.py loads the plugin."""
    python = new_environment()
    run([python, "-c", "import pytest_ckpt"], cwd=directory, exit_codes=[1])
    target = directory.with_name("mnt array")
    words = [f"--ckpt-target={target}", f"--ckpt-report={directory / 'ckpt-report'}", *SMALLEST]
    run([python, "-P", "-m", "pytest", *words], cwd=checkout, exit_codes=PASSED_BUT_FOR_COLD)
    is_report_of_a_rehearsal(directory)
    assert not any(target.iterdir())


@pytest.mark.thorough
@pytest.mark.parametrize(("how", "workers"), [("wheel", "2"), ("editable", "0"), ("checkout", "2")])
def test_a_vendor_s_suite_runs_beside_ours_however_they_are_installed(
    how, workers, checkout, new_environment, directory, request
):
    """The documentation's example suite runs together with ours, for each way of installing the plugin.

    The names of the suite's directory and of the target contain spaces.
    """
    python = new_environment(request.getfixturevalue("wheel") if how == "wheel" else None)
    if how == "editable":
        run([sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install", "--quiet",
             "--no-deps", "--no-index", "--no-build-isolation", "--editable", str(checkout)])  # fmt: skip
    # Only its conftest makes an uninstalled checkout known to pytest, so the directory must be inside the checkout.
    home = checkout if how == "checkout" else directory
    vendor = Path(shutil.copytree(CHECKOUT / "docs" / "examples" / "acme", home / "the suite of ACME"))
    report = directory / "ckpt-report"
    words = [f"--ckpt-target={directory.with_name('mnt array')}", f"--ckpt-report={report}", *SMALLEST]
    words += ["--ckpt-gate-table=speed-only", "-n", workers, "--pyargs", "pytest_ckpt.suites", vendor.name]
    try:
        run([python, "-P", "-m", "pytest", *words], cwd=home, exit_codes=PASSED_BUT_FOR_COLD)
    finally:
        shutil.rmtree(vendor)
    is_report_of_a_rehearsal(directory)
    outcomes = {r["id"]: r["outcome"] for r in json.loads((report / "report.json").read_text())["requirements"]}
    assert outcomes["ACME-DROPPED"] == "met"


def is_report_of_a_rehearsal(directory):
    report = json.loads((directory / "ckpt-report" / "report.json").read_text())
    assert report["grade"] == "rehearsal"
    outcomes = {r["id"]: r["outcome"] for r in report["requirements"]}
    for requirement in ("SAVE", "LOAD", "INTEGRITY", "DURABLE-CALLS"):
        assert outcomes[requirement] == "met"
    assert (report["exit_code"] == 0) == (outcomes["COLD"] == "met")
    assert "llama3-8b-open-2" in (directory / "ckpt-report" / "certificate.html").read_text()


def test_plain_pytest_in_a_checkout_runs_only_the_project_s_tests(checkout, new_environment):
    found = run([new_environment(), "-P", "-m", "pytest", "--collect-only", "-q"], cwd=checkout)
    assert [line for line in found.splitlines() if "::" in line] == ["tests/test_one.py::test_one"]


def test_a_directory_of_tests_elsewhere_is_left_alone_by_the_wheel(wheel, new_environment, directory):
    (directory / "test_mine.py").write_text("def test_mine(): pass\n")
    found = run([new_environment(wheel), "-m", "pytest", "-q"], cwd=directory)
    assert "1 passed" in found
