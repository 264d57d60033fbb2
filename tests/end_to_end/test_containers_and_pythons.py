"""Installation in CI: pinned dependencies, the steps of the Containerfile, and the wheel on each Python version."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import CHECKOUT
from tests.support.machine import patience

PINS = dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", (CHECKOUT / "constraints-runtime.txt").read_text(), re.MULTILINE))
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
CONTAINERFILE = CHECKOUT / "docs" / "recipes" / "Containerfile"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "constraints-runtime.txt", "pytest_ckpt", "suites", "templates")
SMALLEST = ("--cluster=8", "--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-ranks=2", "--ckpt-profile=smoke",
            "--ckpt-operations=2", "--ckpt-engine=stream", "--ckpt-gate-table=speed-only")  # fmt: skip
# The codes 1 and 8 are for a cache that cannot be dropped, for example of a temporary directory in memory.
ENDED_WELL = (0, 1, 8)


def needed(distribution):
    """Yield the dependencies of an installed distribution that apply on this machine. Extras are not included."""
    for line in importlib.metadata.requires(distribution) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def test_every_dependency_of_a_run_is_pinned_to_what_it_may_be():
    left = [Requirement(line) for line in PROJECT["dependencies"]]
    seen = set()
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        assert name in PINS, f"{name} is needed, and constraints-runtime.txt does not pin it"
        assert requirement.specifier.contains(PINS[name], prereleases=True), f"{requirement}: pinned is {PINS[name]}"
        # The requirements of another version are not known here.
        if name not in seen and importlib.metadata.version(name) == PINS[name]:
            left += needed(name)
        seen.add(name)


def test_nothing_else_is_pinned():
    extras = {canonicalize_name(Requirement(line).name) for lines in PROJECT["optional-dependencies"].values()
              for line in lines} - {"pytest-ckpt"}  # fmt: skip
    assert not extras & set(PINS)
    assert {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]} <= set(PINS)


def steps(word):
    """Return the arguments of each occurrence of the instruction ``word`` in the Containerfile."""
    lines = CONTAINERFILE.read_text().replace("\\\n", " ")
    return re.findall(rf"^{word} (.+)$", lines, re.MULTILINE)


def test_the_container_is_not_root_is_light_and_copies_what_is_there():
    assert steps("USER") == ["10001"]
    text = CONTAINERFILE.read_text()
    assert text.index("USER") < text.index("ENTRYPOINT")
    (install,) = (step for step in steps("RUN") if "pip install" in step)
    assert "constraints-runtime.txt" in install
    assert "[" not in install, "no extra: torch alone is larger than everything else"
    copied = {name for step in steps("COPY") if "--from" not in step for name in step.split()[:-1]}
    assert copied == set(SOURCES)


def environment():
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "VIRTUAL_ENV", "COV_"))}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run(*command, cwd, codes=(0,)):
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment(), capture_output=True, text=True, check=False,
        timeout=patience(900),
    )  # fmt: skip
    if done.returncode and "No matching distribution" in done.stderr + done.stdout:
        pytest.skip(f"no package index has what this Python needs: {done.stderr.strip().splitlines()[-1]:.200}")
    assert done.returncode in codes, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def tried(bin_directory, home):
    """Make a small run with the pytest in ``bin_directory``; return the run's report."""
    (home / "target").mkdir()
    (home / "work").mkdir()
    words = ("-p", "no:cacheprovider", f"--ckpt-target={home / 'target'}", *SMALLEST)
    run(bin_directory / "pytest", *words, cwd=home / "work", codes=ENDED_WELL)
    return json.loads((home / "work" / "ckpt-report" / "report.json").read_text())


@pytest.fixture
def source(tmp_path):
    """A copy of the files that the Containerfile copies, because a build writes into its directory."""
    made = tmp_path / "source"
    made.mkdir()
    for name in SOURCES:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(CHECKOUT / name, made / name)
    return made


@pytest.mark.thorough
def test_the_steps_of_the_container_make_an_environment_that_runs(source, tmp_path):
    venv, install = (step for step in steps("RUN") if "venv" in step or "pip install" in step)
    for step in (venv, install):
        words = step.replace("/opt/ckpt", str(tmp_path / "ckpt")).replace("/source", str(source)).split()
        run(*[sys.executable if word == "python" else word for word in words], cwd=tmp_path)
    assert tried(tmp_path / "ckpt" / "bin", tmp_path)["measurements"]
    installed = json.loads(run(tmp_path / "ckpt/bin/pip", "list", "--format=json", cwd=tmp_path))
    versions = {canonicalize_name(row["name"]): row["version"] for row in installed}
    assert not {"torch", "botocore"} & set(versions)
    assert {name: versions[name] for name in PINS if name in versions} == {n: PINS[n] for n in PINS if n in versions}


def python_of(version):
    """Return the path of a working Python ``version`` from pyenv or PATH; None if there is none."""
    homes = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python"))
    for candidate in [*homes[::-1], shutil.which(f"python{version}")]:
        if candidate:
            asked = [candidate, "-c", "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False, env=environment())
            if done.stdout.strip() == version:
                return candidate
    return None


@pytest.mark.thorough
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_runs_on_each_python_that_is_here(version, source, tmp_path):
    python = python_of(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    run(python, "-m", "venv", tmp_path / "environment", cwd=tmp_path)
    program = tmp_path / "environment" / "bin"
    run(program / "pip", "wheel", "-q", "--no-deps", "-w", tmp_path / "wheel", source, cwd=tmp_path)
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    run(program / "pip", "install", "-q", "-c", CHECKOUT / "constraints-runtime.txt", wheel, cwd=tmp_path)
    report = tried(program, tmp_path)
    assert report["measurements"]
    assert report["environment"]["versions"]["python"].startswith(f"{version}.")
    assert "cluster" in run(program / "pytest-ckpt", "plan", "--cluster=16000", cwd=tmp_path)
