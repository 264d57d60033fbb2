"""A real run that signs its files and is added to a history, with the documented commands."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SMALLEST = (
    "--cluster=1", "--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-ranks=2", "--ckpt-profile=smoke",
    "--ckpt-operations=2", "--ckpt-scale=1/10000", "--ckpt-engine=stream", "--ckpt-gate-table=speed-only",
)  # fmt: skip


@pytest.mark.thorough
def test_a_run_signs_itself_and_is_kept(run_pytest, pytester):
    (pytester.path / "target").mkdir()
    for words in (["genpkey", "-algorithm", "ed25519", "-out", "key.pem"],
                  ["pkey", "-in", "key.pem", "-pubout", "-out", "key.pub"]):  # fmt: skip
        subprocess.run(["openssl", *words], check=True, cwd=pytester.path)
    (pytester.path / "system.toml").write_text('[system]\nvendor = "Example Storage Inc."\n')
    result = run_pytest("--ckpt-target=target", *SMALLEST, "--ckpt-sign=key.pem", "--ckpt-history=kept/here",
                        "--ckpt-system=system.toml", "--ckpt-pdf")  # fmt: skip
    assert result.ret in (0, 8), result.stdout.str()
    result.stdout.fnmatch_lines([
        f"PDF: {pytester.path / 'ckpt-report' / 'certificate.pdf'}", "history: kept/here holds 1 run",
    ])  # fmt: skip
    assert (pytester.path / "ckpt-report" / "certificate.pdf").read_bytes().startswith(b"%PDF")
    (line,) = (json.loads(text) for text in (pytester.path / "kept/here/history.jsonl").read_text().splitlines())
    report = json.loads((pytester.path / "ckpt-report/report.json").read_text())
    assert report["system"] == {"system": {"vendor": "Example Storage Inc."}}
    assert "Example Storage Inc." in (pytester.path / "ckpt-report/certificate.html").read_text()
    for directory in ("ckpt-report", f"kept/here/{line['directory']}"):
        found = pytester.run(sys.executable, "-m", "pytest_ckpt.cli.main", "verify", directory, "--key=key.pub")
        assert found.ret == 0, found.stdout.str()
        found.stdout.fnmatch_lines(["UNCHANGED since it was signed*"])
    found = pytester.run(sys.executable, "-m", "pytest_ckpt.cli.main", "trend", "kept/here", "--fail-on-regression=10%")
    assert found.ret == 0
    found.stdout.fnmatch_lines(["1 run", "no change shows", "no regression of 10 %; 2 of 2 series are too short *"])


def test_a_history_on_the_target_is_refused_before_anything_is_written(run_pytest, pytester):
    (pytester.path / "target").mkdir()
    result = run_pytest("--ckpt-target=target", *SMALLEST, "--ckpt-history=target/kept")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--ckpt-history target/kept is inside --ckpt-target target.*"])
    assert not list((pytester.path / "target").iterdir())
    assert not (pytester.path / "ckpt-report").exists()
