"""The PDF of a run: the manifest contains its digest, and missing libraries are reported early.

If the PDF cannot be printed, the run continues.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.manifest import MANIFEST
from pytest_ckpt.evidence.verification import verify_directory
from pytest_ckpt.report.pdf import check_printer
from pytest_ckpt.run.close import write_report
from pytest_ckpt.support.errors import UsageError
from tests.support import report_pages, synthetic_run
from tests.support.pdf_files import output_of


@pytest.fixture(scope="module")
def run_with_pdf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("pdf") / "run"
    document = synthetic_run.write_run(run, options={"ckpt_pdf": "on"})
    assert write_report(document, run, pdf=True) == f"PDF: {run / 'certificate.pdf'}"
    return run


@pytest.fixture
def directory(run_with_pdf: Path, tmp_path: Path) -> Path:
    return shutil.copytree(run_with_pdf, tmp_path / "run")


def outcomes(directory: Path) -> dict[str, str]:
    return {c.name: c.outcome for c in verify_directory(directory, None)}


# --- in a run directory
# -------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_verify_covers_it(directory: Path) -> None:
    assert "certificate.pdf" in (directory / MANIFEST).read_text()
    assert outcomes(directory) == {
        "digests": "holds", "verdicts": "holds", "pages": "holds", "signature": "not checked",
    }  # fmt: skip
    data = bytearray((directory / "certificate.pdf").read_bytes())
    data[-1] ^= 1
    (directory / "certificate.pdf").write_bytes(data)
    (digests, *_) = verify_directory(directory, None)
    assert (digests.outcome, digests.details) == ("broken", ("changed: certificate.pdf",))


def without_weasyprint(monkeypatch: pytest.MonkeyPatch, directory: Path, code: str) -> None:
    """Write ``code`` as a module that replaces WeasyPrint in every process started from now on."""
    directory.mkdir()
    (directory / "weasyprint.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(directory), str(Path(__file__).parents[2])]))


FAILING = {
    "__version__ = '70.0'\nHTML = lambda **_: 1 // 0": "ZeroDivisionError",
    "__version__ = '70.0'\nimport os; HTML = lambda **_: os.abort()": "signal 6",
    "__version__ = '70.0'\nimport os; HTML = lambda **_: os._exit(1)": "exit code 1",
}


@pytest.mark.parametrize("code", FAILING)
def test_a_printer_that_fails_or_crashes_costs_the_run_neither_report_nor_digests(
    code: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "certificate.pdf").unlink()
    without_weasyprint(monkeypatch, tmp_path / "broken", code)
    (tmp_path / "broken" / "weasyprint.py").rename(tmp_path / "broken" / "code.py")
    (tmp_path / "broken" / "weasyprint").mkdir()
    (tmp_path / "broken" / "code.py").rename(tmp_path / "broken" / "weasyprint" / "__init__.py")
    (tmp_path / "broken" / "weasyprint" / "urls.py").write_text("URLFetcher = lambda **_: None\n")
    document = write_report(json.loads((directory / "report.json").read_text()), directory, pdf=True)
    assert document.startswith(f"THERE IS NO PDF: {directory / 'certificate.pdf'}: ")
    assert FAILING[code] in document
    assert {n: o for n, o in outcomes(directory).items() if n != "signature"} == {
        "digests": "holds", "verdicts": "holds", "pages": "holds"
    }  # fmt: skip
    assert not list(directory.glob("*.part"))


@pytest.mark.thorough
def test_judge_writes_a_pdf_of_a_run_and_of_a_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    synthetic_run.write_run(tmp_path / "run")
    main(["judge", str(tmp_path / "run"), "--cluster=24000", f"--pdf={tmp_path / 'again.pdf'}"])
    assert "24,000 accelerators" in output_of("pdftotext", tmp_path / "again.pdf", "-")
    (tmp_path / "tree").mkdir()
    report_pages.judged_tree(tmp_path / "tree")
    main(["judge", str(tmp_path / "tree" / "made-up"), "--cluster=16000", f"--pdf={tmp_path / 'table.pdf'}"])
    assert "Systems and checkpoints" in output_of("pdftotext", tmp_path / "table.pdf", "-")


# --- missing libraries are reported before a run ----------------------------------------------------------------------


def test_a_printer_that_works_is_no_error() -> None:
    check_printer("--ckpt-pdf")


def test_without_weasyprint_the_remedy_is_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_weasyprint(monkeypatch, tmp_path / "none", "raise ImportError")
    with pytest.raises(
        UsageError, match=r"--ckpt-pdf: WeasyPrint is not installed\.\n.*pip install 'pytest-ckpt\[pdf\]'"
    ):
        check_printer("--ckpt-pdf")


def test_an_old_weasyprint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_weasyprint(monkeypatch, tmp_path / "old", "__version__ = '67.0'")
    with pytest.raises(UsageError, match=r"WeasyPrint 68 or newer is needed; this is 67\.0"):
        check_printer("--ckpt-pdf")


def run_with_broken_printer(tmp_path: Path, code: str, *words: str, **environment: str) -> subprocess.CompletedProcess:
    """Run Python with the arguments ``words``, and with ``code`` in place of the module weasyprint.

    Return the completed process.
    """
    (tmp_path / "weasyprint.py").write_text(code)
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )  # fmt: skip


def test_without_pango_a_run_ends_before_it_writes_anything(tmp_path: Path) -> None:
    """If WeasyPrint lacks a library, a run with --ckpt-pdf ends with exit code 4 before it writes.

    WeasyPrint also prints advice to standard output, which must not appear.
    """
    (tmp_path / "target").mkdir()
    code = "print('could not import some external libraries')\nraise OSError(\"cannot load library 'libpango-1.0-0'\")"
    done = run_with_broken_printer(
        tmp_path, code, "-m", "pytest", "-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider",
        f"--ckpt-target={tmp_path / 'target'}", "--cluster=64", "--ckpt-profile=smoke", "--ckpt-pdf",
        f"--ckpt-report={tmp_path / 'report'}",
    )  # fmt: skip
    assert done.returncode == 4
    assert "cannot load library 'libpango-1.0-0'" in done.stderr
    assert "apt-get install libpango-1.0-0" in done.stderr
    assert "external libraries" not in done.stdout
    assert list((tmp_path / "target").iterdir()) == []
    assert not (tmp_path / "report").exists()


@pytest.mark.thorough
def test_judge_and_doctor_report_that_the_pdf_library_is_missing(tmp_path: Path) -> None:
    synthetic_run.write_run(tmp_path / "run")
    code = "raise OSError(\"cannot load library 'libpango-1.0-0'\")"
    done = run_with_broken_printer(tmp_path, code, "-m", "pytest_ckpt.cli.main", "judge", "run", "--pdf=x.pdf")
    assert (done.returncode, done.stdout) == (4, "")
    assert "libpango" in done.stderr
    done = run_with_broken_printer(
        tmp_path, code, "-m", "pytest_ckpt.cli.main", "doctor", "--ckpt-pdf", "--ckpt-ranks=2", "--json"
    )
    assert done.returncode == 4
    assert next(f for f in json.loads(done.stdout)["findings"] if f["name"] == "PDF")["remedy"].startswith("Install")


def test_a_machine_without_fonts_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fonts.conf").write_text('<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig/>')
    monkeypatch.setenv("FONTCONFIG_FILE", str(tmp_path / "fonts.conf"))
    with pytest.raises(UsageError, match="finds no fonts") as caught:
        check_printer("--ckpt-pdf")
    assert "fonts-dejavu-core" in caught.value.remedy
