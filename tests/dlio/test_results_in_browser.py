"""The page of a tree of published results in a real browser: it draws, and says nothing on the console."""

from __future__ import annotations

import shutil
import subprocess
from datetime import timedelta

import pytest
from made_results import MadeRun, published

from pytest_ckpt import cli

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_it_draws_without_a_word_on_the_console(tmp_path, capsys):
    hostile = "</style><script>alert(1)< & ü"
    for number, system in enumerate(("array", hostile.replace("/", "_"), "a" * 90)):
        started = MadeRun().started + timedelta(days=number)
        folder = published(tmp_path, "Maker", system, "llama3-8b", "20260301_120000")
        MadeRun(started=started).write(folder, ranks=[0] if number else None)
    page, picture = tmp_path / "table.html", tmp_path / "page.png"
    cli.main(["judge", str(tmp_path), "--cluster=16000", f"--html={page}"])
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars",
        "--enable-logging=stderr", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1200,1600", f"--screenshot={picture}", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr
    assert picture.stat().st_size > 10_000
