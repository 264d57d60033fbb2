"""Results in the layout of v3.0, which the script in PYTEST_CKPT_V3_TREE writes.

If the variable is not set, the tests are skipped. The script creates a directory ``mlperf-v3`` with two systems. The
first system saved and loaded in two invocations, and its files contain the times of two of eight ranks. The second
system has 1,024 ranks and no metadata of mlpstorage.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pytest_ckpt.cli import main as cli
from tests.support.synthetic_results import CAPABILITIES, describe

SCRIPT = os.environ.get("PYTEST_CKPT_V3_TREE", "")
pytestmark = pytest.mark.skipif(not SCRIPT, reason="PYTEST_CKPT_V3_TREE names no script that writes results of v3.0")


@pytest.fixture
def tree(tmp_path):
    subprocess.run([sys.executable, SCRIPT], cwd=tmp_path, check=True)
    return tmp_path / "mlperf-v3"


def judged(tree, capsys, *words):
    cli.main(["judge", str(tree), "--json", *words])
    return json.loads(capsys.readouterr().out)


def rules(tree, capsys, edition):
    document = judged(tree, capsys, f"--rules={edition}")
    return [{rule["number"]: rule["outcome"] for rule in row["rules"]} for row in document["results"]]


def test_the_last_operation_of_each_invocation_is_all_that_is_not_known(tree, capsys):
    document = judged(tree, capsys, "--cluster=16000")
    two_ranks, thousand = document["results"]
    assert two_ranks["verdict"] == "met as far as recorded: 9 of 10 saves, 9 of 10 loads"
    assert [f["outcome"] for f in two_ranks["figures"]] == ["met as far as recorded"] * 2
    assert [f["known_operations"] for f in two_ranks["figures"]] == [9, 9]
    # The requirement itself stays undecided.
    assert two_ranks["outcomes"]["SAVE"] == two_ranks["outcomes"]["LOAD"] == "not run"
    assert thousand["verdict"] == "save too slow"
    assert [f["outcome"] for f in thousand["figures"]] == ["failed", "met as far as recorded"]
    assert {row["grade"] for row in document["results"]} == {"rehearsal"}


@pytest.mark.parametrize(("edition", "accelerator"), [("mlperf-v3", "warning"), ("mlperf-v4", "broken")])
def test_the_rules_see_the_probe_and_the_missing_accelerator(tree, capsys, edition, accelerator):
    two_ranks, thousand = rules(tree, capsys, edition)
    assert (two_ranks["4.3.4"], two_ranks["4.4.2"], two_ranks["4.7.2"]) == (accelerator, "met", "met")
    assert (two_ranks["4.7.3"], two_ranks["4.7.4"]) == ("not told", "not told")
    assert (thousand["4.3.4"], thousand["4.4.2"]) == ("not told", "not told")


def test_a_shared_file_system_and_a_description_are_seen(tree, capsys):
    (leaf,) = tree.glob("closed/Alluxio/results/*/checkpointing/llama3-8b/20260708_065100")
    probe = leaf / "fs_separation.json"
    probe.write_text(json.dumps(json.loads(probe.read_text()) | {"same_filesystem": True}))
    describe(tree, "Alluxio", leaf.parents[2].name, CAPABILITIES | {"multi_host": False})
    two_ranks, _ = rules(tree, capsys, "mlperf-v3")
    assert (two_ranks["4.4.2"], two_ranks["4.7.3"], two_ranks["4.7.4"]) == ("broken", "met", "met")


def test_a_datasize_leaf_beside_a_run_is_no_run(tree, capsys):
    before = judged(tree, capsys, "--cluster=16000")
    for leaf in tree.glob("closed/Alluxio/results/*/checkpointing/llama3-8b/20260708_064613"):
        metadata = json.loads((leaf / f"checkpointing_{leaf.name}_metadata.json").read_text())
        sizing = leaf.with_name("20260708_060000")
        sizing.mkdir()
        content = json.dumps(metadata | {"command": "datasize"})
        (sizing / "checkpointing_20260708_060000_metadata.json").write_text(content)
    after = judged(tree, capsys, "--cluster=16000")
    assert (after["runs"], after["messages"]) == (4, before["messages"])
    # A workload has one or two run directories. A third one is not a run.
    assert rules(tree, capsys, "mlperf-v3")[0]["2.1.23"] == "met"


def test_bytes_of_the_link_replace_signs_of_time(tree, capsys):
    (leaf,) = tree.glob("closed/Alluxio/results/*/checkpointing/llama3-8b/20260708_065100")
    file = leaf / f"checkpointing_{leaf.name}_metadata.json"
    metadata = json.loads(file.read_text())
    loaded = 10 * 112_425_623_552
    for name, moment, count in (("start", "06:51:03", 5 * 10**12), ("end", "06:55:14", 5 * 10**12 + loaded)):
        network = [{"interface_name": "ens5", "rx_bytes": count}, {"interface_name": "lo", "rx_bytes": 1}]
        host = {"hostname": "client-1", "collection_timestamp": f"2026-07-08T{moment}Z", "network": network}
        metadata["cluster_snapshots"][name] = {"hosts": [host]}
    file.write_text(json.dumps(metadata))
    two_ranks, thousand = judged(tree, capsys, "--cluster=16000")["results"]
    assert two_ranks["network"]["crossed"]
    assert (two_ranks["network"]["received_bytes"], two_ranks["network"]["at_least"]) == (loaded, False)
    assert thousand["network"] is None
