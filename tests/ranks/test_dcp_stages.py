"""The engine dcp, if only some ranks store a tensor.

Examples are pipeline stages and replicas that store no weights.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.launching.launcher import find_launcher
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.targets.schemes import create_target, known_targets, spec_of
from tests.support import CHECKOUT
from tests.support.machine import patience

_SECONDS = 400


class Gathered:
    """A fake group in which this process is rank 0.

    ``gather`` returns ``expected_text`` in place of the values of all ranks.
    """

    rank = 0

    def __init__(self, expected_text):
        self._said = expected_text

    def gather(self, _value):
        return self._said

    def share(self, value):
        return value


def tensors_of_shard(shard):
    return {t.name: (t.dtype, t.elements) for file in shard.files for t in file.tensors}


def holders(expected_text):
    # Imported here, because every worker collects this module and torch takes seconds.
    from pytest_ckpt.ranks.engines.dcp import find_holders  # noqa: PLC0415

    return dict(find_holders(Gathered(expected_text), ()))


def test_ranks_of_a_stage_hold_its_layers_together_and_all_ranks_the_optimizer():
    shards = layout("llama3-405b", mode="full", scale=1e-6).ranks()
    found = holders([tensors_of_shard(shard) for shard in shards])
    assert len(shards) == 512
    # 32 stages of 8 ranks in the first replica; the second replica has no weights.
    stages = {tuple(range(8 * stage, 8 * stage + 8)) for stage in range(32)}
    assert set(found) == stages | {tuple(range(512))}
    assert all(name.startswith("optimizer/") for name in found[tuple(range(512))])
    assert "layer_0/0" in found[tuple(range(8))]


def test_parts_of_one_tensor_that_differ_are_refused_with_their_ranks():
    with pytest.raises(RuntimeError, match="ranks 0 and 1 have parts of a that differ in size or type"):
        holders([{"a": ("float16", 3)}, {"a": ("float16", 4)}])


@pytest.mark.thorough
def test_each_rank_loads_what_it_saved_and_reads_the_metadata(tmp_path):
    target, scratch = tmp_path / "target", tmp_path / "scratch"
    target.mkdir()
    scratch.mkdir()
    area = create_target(spec_of(str(target), known_targets({})), str(target)).create_area("staged")
    launcher = find_launcher(None, ())
    done = subprocess.run(
        launcher.command(4, "tests.support.staged_dcp_program"),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(_SECONDS),
        env=launcher.environment("staged", str(scratch)) | {"STAGED_AREA": json.dumps(to_plain(area))},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    found = json.loads(line.removeprefix("FOUND "))
    assert (found["checked"], found["faults"]) == (found["wanted"], 0)
    assert found["read"] == [["__0_0.distcp", ".metadata"]] + [[f"__{r}_0.distcp", ".metadata"] for r in (1, 2, 3)]
    assert {path.name for path in target.rglob("*") if path.is_file()} == {"OWNER.json"}
