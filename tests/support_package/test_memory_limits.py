"""Memory limits of a process, from its own control group and the parent groups, in versions 1 and 2."""

from __future__ import annotations

from pathlib import Path

from pytest_ckpt.support.host_state import memory_left_bytes, memory_limit_bytes


def test_memory_limits_of_control_groups_of_both_versions_are_read(tmp_path: Path) -> None:
    root, of = tmp_path / "cgroup", tmp_path / "self"
    (root / "a" / "b").mkdir(parents=True)
    of.write_text("0::/a/b\n")
    assert memory_limit_bytes(root, of) is None
    (root / "a" / "b" / "memory.max").write_text("max\n")
    (root / "a" / "memory.max").write_text("1073741824\n")
    assert memory_limit_bytes(root, of) == 1 << 30
    (root / "memory" / "c").mkdir(parents=True)
    of.write_text("5:cpu,cpuacct:/c\n4:memory:/c\n")
    (root / "memory" / "c" / "memory.limit_in_bytes").write_text("2147483648\n")
    assert memory_limit_bytes(root, of) == 2 << 30
    (root / "memory" / "c" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory_limit_bytes(root, of) is None
    assert memory_limit_bytes(root, tmp_path / "none") is None


def test_the_tightest_control_group_limits_the_memory_left(tmp_path: Path) -> None:
    root, of = tmp_path / "cgroup", tmp_path / "self"
    job = root / "system.slice" / "job"
    job.mkdir(parents=True)
    of.write_text("0::/system.slice/job\n")
    assert memory_left_bytes(root, of) is None
    (root / "system.slice" / "memory.max").write_text(f"{8 << 30}\n")
    (root / "system.slice" / "memory.current").write_text(f"{1 << 30}\n")
    assert memory_left_bytes(root, of) == 7 << 30
    (job / "memory.max").write_text(f"{2 << 30}\n")
    assert memory_left_bytes(root, of) == 2 << 30
    (job / "memory.current").write_text(f"{3 << 29}\n")
    assert memory_left_bytes(root, of) == 1 << 29
    (job / "memory.stat").write_text(f"anon 5\ninactive_file {1 << 29}\n")
    assert memory_left_bytes(root, of) == 1 << 30
