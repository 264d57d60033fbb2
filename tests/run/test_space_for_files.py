"""The space that a run needs in bytes and inodes. If the number of free inodes is unknown, the check is omitted."""

from __future__ import annotations

import os
import resource

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.checks import FILES_OF_CHECKS
from pytest_ckpt.run.fitting import check_file_size, check_files, check_space
from pytest_ckpt.sizing.many_names import NAME_BYTES
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.posix.target import capacity_of
from tests.support.end_to_end import TINY

SETTINGS = resolve(
    {"ckpt_engine": "torch", "ckpt_cluster": "64", "ckpt_model": "llama3-8b", "ckpt_profile": "smoke"}, {}
)
ZEROS = (4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255)
SMALL = (4096, 4096, 1000, 500, 400, 600, 500, 300, 0, 255)


def test_a_file_system_that_answers_with_zeros_has_no_known_space():
    assert capacity_of(os.statvfs_result(ZEROS)) is None


@pytest.mark.parametrize(
    ("said", "free_checkpoints", "helps"),
    [
        ({}, 3.5, True),
        ({"ckpt_confidence": "95/95"}, 3.5, True),
        ({}, 2.5, False),
        ({"ckpt_keep_last": "3"}, 3.5, False),
    ],
)
def test_fewer_kept_checkpoints_are_the_first_remedy_for_too_little_space_if_they_fit(said, free_checkpoints, helps):
    settings = resolve({"ckpt_engine": "torch", "ckpt_cluster": "64", "ckpt_model": "llama3-8b", **said}, {})
    plan = plan_run(settings, None)
    free = int(free_checkpoints * plan.checkpoints[0].checkpoint_bytes)
    with pytest.raises(UsageError, match="Too little space on the target") as error:
        check_space(plan, settings, free)
    assert ("keep fewer checkpoints with --ckpt-keep-last=2" in error.value.remedy) is helps


@pytest.mark.parametrize("of_btrfs_or_ceph", [0, -1])
def test_a_file_system_without_a_limit_of_files_has_no_known_number(of_btrfs_or_ceph):
    assert capacity_of(os.statvfs_result((*SMALL[:7], of_btrfs_or_ceph, *SMALL[8:]))).free_files is None


def test_space_and_files_are_those_of_this_user():
    found = capacity_of(os.statvfs_result(SMALL))
    assert (found.free_bytes, found.used_bytes, found.free_files) == (400 * 4096, 500 * 4096, 300)


@pytest.mark.parametrize(("free", "checked", "fits"), [(None, 0, True), (10**6, 0, True), (3, 0, False),
                                                       (FILES_OF_CHECKS - 1, FILES_OF_CHECKS, False)])  # fmt: skip
def test_a_plan_with_more_files_than_fit_is_refused(free, checked, fits):
    plan = plan_run(SETTINGS, None)
    if fits:
        check_files(plan, SETTINGS, free, checked)
    else:
        with pytest.raises(UsageError, match="Too few free inodes"):
            check_files(plan, SETTINGS, free, checked)


def test_the_names_of_the_suite_metadata_need_inodes_and_space():
    words = {"ckpt_engine": "torch", "ckpt_cluster": "64", "ckpt_model": "llama3-8b", "ckpt_profile": "smoke"}
    settings = resolve(words | {"ckpt_suite": "performance,metadata:files=20000,directories=10"}, {})
    plan, without = plan_run(settings, None), plan_run(SETTINGS, None)
    # This includes groups of directories, and the directory that contains all groups.
    names = 20_000 + 10 + 2
    assert plan.space_bytes - without.space_bytes == names * NAME_BYTES
    need = names + plan.checkpoints[0].files_of_saves(settings.operations)
    check_files(plan, settings, need)
    with pytest.raises(UsageError, match=f"up to {need:,} files at a time"):
        check_files(plan, settings, need - 1)


@pytest.mark.parametrize(("limit", "fits"), [(resource.RLIM_INFINITY, True), (1 << 40, True), (1 << 20, False)])
def test_a_plan_with_a_file_above_the_limit_of_the_user_is_refused(limit, fits):
    plan = plan_run(SETTINGS, None)
    if fits:
        check_file_size(plan, limit)
    else:
        with pytest.raises(
            UsageError, match=r"files of at most 1\.05 MB \(RLIMIT_FSIZE\), and the largest file"
        ) as error:
            check_file_size(plan, limit)
        assert "ulimit -f unlimited" in error.value.remedy


def test_the_limit_of_the_user_is_looked_at_before_anything_is_written(runner):
    options = (*TINY, "--ckpt-scale=1/1000")
    run = runner.run(*options, around=("prlimit", f"--fsize={30 << 20}"))
    assert run.code == 4, run.text
    assert "Processes of this user may write files of at most 31.5 MB" in run.text
    assert run.left_on_target == []


def test_a_target_with_few_inodes_is_refused_before_anything_is_written(runner, mount):
    point = mount("tmpfs", 400, options="nr_inodes=8")
    run = runner.run(*TINY, target=point)
    assert run.code == 4, run.text
    assert "Too few free inodes on the target" in run.text
    assert run.left_on_target == []
