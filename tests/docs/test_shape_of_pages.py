"""Pages are short. They begin with their purpose and the time they take, and end with a link to the next page."""

from __future__ import annotations

import json
import re

import pytest

from pytest_ckpt.cli import main as cli
from tests.support.doc_pages import CHECKOUT, DOCS, prose

README = (CHECKOUT / "README.md").read_text()
MAXIMUM_WORDS = 2_500
# Pages of entries that are looked up one at a time.
REFERENCES = {
    "conformance.md", "file_systems.md", "how_often_wrong.md", "mlperf_v3.md", "options.md", "requirements.md",
    "results.md",
}  # fmt: skip
WITHOUT_NEXT = {"index.md", "options.md"}
USER_PAGES = [page for page in sorted(DOCS.glob("*.md")) if page.name != "index.md"]


def words_of(text: str) -> int:
    return len(re.sub(r"\]\([^)]*\)|[|`*-]+", " ", text).split())


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda page: page.name)
def test_a_page_is_short_unless_it_is_a_reference(page):
    words = words_of("\n".join(line for _, line in prose(page)))
    assert words <= MAXIMUM_WORDS or page.name in REFERENCES, f"{words} words"


@pytest.mark.parametrize("page", [p for p in USER_PAGES if p.name not in WITHOUT_NEXT], ids=lambda page: page.name)
def test_a_page_begins_with_its_use_and_ends_with_the_next_ones(page):
    lines = [line for _, line in prose(page) if line.strip()]
    begin = " ".join(lines[1:4])
    assert begin.startswith("After this page ")
    assert re.search(r"\bminutes?\b", begin)
    next_pages = page.read_text().rpartition("\n## Next\n")[2].strip().splitlines()
    assert next_pages
    assert all(line.startswith("- [") for line in next_pages)


def test_the_readme_fits_a_page():
    assert len(README.splitlines()) <= 115
    text = re.sub(r"```.*?```|^    .*?$|<!--.*?-->", "", README, flags=re.DOTALL | re.MULTILINE)
    assert words_of(text) <= 800


def test_the_table_of_a_real_acceptance_follows_from_the_plan(capsys):
    rows = re.findall(
        r"^\| (llama3-\w+) \| ([\d,]+) \| (\d+) \| ([\d.]+) TB \| ([\d.]+) TB \| ([\d.]+) GB, ", README, re.M
    )
    assert len(rows) == 4
    memory = {}
    for engine in ("stream", "torch"):
        cli.main(["plan", "--cluster=16000", "--ckpt-mode=full", f"--ckpt-engine={engine}", "--json"])
        plan = json.loads(capsys.readouterr().out)
        memory[engine] = {row["model"]: row for row in plan["checkpoints"]}
    for model, ranks, hosts, written, space, of_torch in rows:
        row = memory["torch"][model]
        assert int(ranks.replace(",", "")) == row["processes"] == 8 * int(hosts)
        assert f"{10 * row['full_bytes'] / 1e12:.3g}" == f"{float(written):.3g}"
        assert f"{row['space_bytes'] / 1e12:.3g}" == f"{float(space):.3g}"
        assert f"{row['memory_bytes']['largest_rank'] / 1e9:.3g}" == of_torch
        assert memory["stream"][model]["memory_bytes"]["largest_rank"] <= 155_000_000
    cluster = plan["cluster"]
    assert f"{cluster['failures_per_day'] / cluster['accelerators']:.6f}" in README
    shown = [f"{cluster['save_limit_seconds']:.1f} s to save", f"{cluster['load_limit_seconds']:.0f} s to load"]
    assert all(text in README for text in shown)
