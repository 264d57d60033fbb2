"""Targets on a loop device. The host also caches the data of such a target as pages of the backing file."""

from __future__ import annotations

import pytest

from tests.support.end_to_end import TINY

# Processes in this namespace cannot write to drop_caches, as in a container.
NO_DROP = (
    "unshare", "--mount", "sh", "-c",
    'mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec "$@"', "sh",
)  # fmt: skip


def test_advice_to_drop_reaches_the_file_below_a_loop_device(runner, mount):
    point = mount("ext4", 256)
    run = runner.run(*TINY, target=point, around=NO_DROP)
    verdict = run.verdict("COLD")
    assert verdict["outcome"] == "met", verdict["because"]
    assert "dropped by: posix_fadvise" in verdict["because"]
    assert "Names and attributes of files could not be dropped" in verdict["because"]
    (storage,) = run.measurement()["cache"]["storages"]
    assert storage["files"] == [str(point.parent / "image")]
    assert f"on the file {point.parent / 'image'} on " in run.text


@pytest.mark.alone  # other tests drop the page cache of this machine
def test_a_drop_command_that_does_nothing_below_a_loop_device_is_seen(runner, mount):
    run = runner.run(*TINY, "--ckpt-drop-caches=true", target=mount("ext4", 256), around=NO_DROP)
    assert (run.verdict("COLD")["outcome"], run.verdict("COLD")["reason"]) == ("failed", "cached")


def test_a_loop_device_whose_file_is_in_memory_is_memory(runner, mount):
    memory = mount("tmpfs", 300)
    point = mount("ext4", 256, below=memory)
    run = runner.run(*TINY, target=point)
    verdict = run.verdict("COLD")
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "cached")
    assert f"on the file {memory / 'image'} on tmpfs (memory of this host)" in verdict["because"]
    assert "COLD will fail: the target is memory of this host" in run.text
