"""The job that the controller sends to the ranks follows from the plan and the settings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.engines import BUILT_IN, built_in
from pytest_ckpt.facts.file_rules import AS_RECORDED, FileRule, JobPattern
from pytest_ckpt.ranks.process.job import Task
from pytest_ckpt.sizing.plan import plan_run
from tests.support.synthetic_target import mounted


def test_a_task_has_the_layout_of_the_plan_and_the_rest_of_the_settings():
    fields = {
        "ckpt_cluster": "64",
        "ckpt_model": "llama3-70b",
        "ckpt_profile": "smoke",
        "ckpt_operations": "4",
        "ckpt_engine": "stream",
        "ckpt_suite": "performance,contention",
        "ckpt_keep_files": "true",
        "ckpt_drop_caches": "never",
    }
    settings = resolve(fields, {})
    (planned,) = plan_run(settings, mounted("ext4")).checkpoints
    task = Task.of(planned, settings, seed=7)
    assert (task.subject, task.model, task.mode) == (planned.subject, "llama3-70b", "subset")
    assert (task.processes, task.scale, task.operations) == (8, 1 / 1000, 4)
    assert (task.engine, task.seed, task.drop_caches) == ("stream", 7, "never")
    assert (task.keep, task.endurance, task.near_full, task.crashes, task.serving) == (True, None, None, None, None)
    expected = ("storm", "shifted", "joined", "split", "neighbour", "mixed")
    assert tuple(name for name in task.patterns if name in expected) == expected
    assert from_plain(Task, to_plain(task)) == task


REPLAY = built_in("replay")
OF_JOB = REPLAY._replace(files=FileRule(pattern=JobPattern(file="job.json", sha256="0", text="{}", pace=AS_RECORDED)))


@pytest.mark.parametrize("engine", [*BUILT_IN, OF_JOB], ids=lambda engine: engine.name)
def test_ranks_know_every_name_that_the_engine_s_rule_has(engine):
    """The job contains all file names of the engine. With these names, ranks remove the files of a killed save."""
    settings = resolve(
        {"ckpt_engine": "torch", "ckpt_cluster": "64", "ckpt_model": "llama3-8b", "ckpt_profile": "smoke"}, {}
    )
    (planned,) = plan_run(settings, mounted("ext4")).checkpoints
    task = Task.of(replace(planned, engine=engine), settings, seed=7)
    assert from_plain(Task, json.loads(json.dumps(to_plain(task)))).files == engine.files
