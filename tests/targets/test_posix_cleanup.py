"""Clean-up removes only the files of a run. A link, pipe or directory in place of such a file is not removed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.targets import Names
from pytest_ckpt.launching.measurements import names_of_run, possible_names
from pytest_ckpt.sizing.many_names import top_directory
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.owner import OWNER, process_began
from pytest_ckpt.targets.posix import run_directory
from pytest_ckpt.targets.posix import target as posix
from pytest_ckpt.targets.posix.run_directory import RunDirectory, find_leftovers, remove, sign_of
from pytest_ckpt.targets.posix.store import PosixStore
from tests.support.selection import examples

CANARY = "canary-0123456789abcdef"
NAMES = ("m/checkpoint-0001/a.pt", "m/checkpoint-0001/b.pt", "m/checkpoint-0002.partial/a.pt")


@pytest.fixture
def target(tmp_path):
    directory = tmp_path / "target"
    directory.mkdir()
    return directory


@pytest.fixture
def run(target):
    directory = RunDirectory(target, "r1")
    directory.create()
    return directory


@pytest.fixture
def precious(tmp_path):
    """Return a directory outside the target with a checkpoint file that a clean-up must not remove."""
    directory = tmp_path / "precious"
    (directory / "checkpoint-0001").mkdir(parents=True)
    (directory / "checkpoint-0001" / "a.pt").write_text("years of work")
    return directory


def make(run, *names):
    for name in names:
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).write_text("ours")


def clean(run, names=NAMES):
    return remove(run.path, run.identity, names)


def test_a_run_creates_one_private_directory_that_names_its_owner(run, target):
    assert [p.name for p in target.iterdir()] == ["pytest-ckpt-r1"]
    assert run.path.stat().st_mode & 0o777 == 0o700
    owner = json.loads((run.path / "OWNER.json").read_text())
    assert (owner["run"], owner["host"], owner["pid"]) == ("r1", socket.gethostname(), os.getpid())


def test_files_of_the_run_are_removed(run, target):
    # A process that looks for a second client may be killed before it removes its file.
    make(run, *NAMES, f"m/{CANARY}", CANARY.replace("canary", "same"))
    assert clean(run) == []
    assert not any(target.iterdir())


def test_a_run_that_made_only_some_of_its_files_is_removed(run, target):
    make(run, NAMES[0])
    assert clean(run) == []
    assert not any(target.iterdir())


def test_a_directory_that_is_gone_already_is_no_problem(run):
    shutil.rmtree(run.path)
    assert clean(run) == []


def test_without_a_directory_of_ours_nothing_is_removed(target):
    (target / "pytest-ckpt-r1").mkdir()
    assert remove(target / "pytest-ckpt-r1", (), NAMES) == []
    assert (target / "pytest-ckpt-r1").is_dir()


def test_a_file_of_others_stays_and_is_reported(run):
    make(run, *NAMES, "m/thesis.tex", "notes.txt")
    assert sorted(clean(run)) == [
        f"{run.path / 'm/thesis.tex'} was not removed: this run did not make it",
        f"{run.path / 'notes.txt'} was not removed: this run did not make it",
    ]
    assert sorted(p.name for p in run.path.rglob("*") if p.is_file()) == ["notes.txt", "thesis.tex"]


@pytest.mark.parametrize("name", ["canary-bird.jpg", "canary-", "canary-4711", f"{CANARY}.old", "OWNER.json.mine"])
def test_a_name_that_only_looks_like_ours_stays(run, name):
    make(run, name)
    (left,) = clean(run)
    assert left.startswith(str(run.path / name))
    assert (run.path / name).exists()


def test_a_link_in_place_of_a_file_is_not_followed(run, precious):
    make(run, *NAMES)
    (run.path / NAMES[0]).unlink()
    (run.path / NAMES[0]).symlink_to(precious / "checkpoint-0001" / "a.pt")
    (left,) = clean(run)
    assert NAMES[0] in left
    assert (precious / "checkpoint-0001" / "a.pt").read_text() == "years of work"


@pytest.mark.parametrize("replaced", ["m", "m/checkpoint-0001"])
def test_a_link_in_place_of_a_directory_is_not_followed(run, precious, replaced):
    make(run, *NAMES)
    shutil.rmtree(run.path / replaced)
    (run.path / replaced).symlink_to(precious if replaced == "m" else precious / "checkpoint-0001")
    (left,) = clean(run)
    assert str(run.path / replaced) in left
    assert (precious / "checkpoint-0001" / "a.pt").read_text() == "years of work"


def test_a_link_in_place_of_the_run_s_own_directory_is_not_followed(run, precious):
    shutil.rmtree(run.path)
    run.path.symlink_to(precious)
    (left,) = remove(run.path, run.identity, ["checkpoint-0001/a.pt"])
    assert left.startswith(f"{run.path} was not removed")
    assert (precious / "checkpoint-0001" / "a.pt").read_text() == "years of work"


def test_the_run_s_directory_is_known_by_its_word_when_the_file_system_numbers_it_anew(run, target):
    """The run's directory is recognized by its owner file, although its inode number has changed.

    sshfs and exFAT by FUSE assign a new number after the kernel has dropped the directory from its cache.
    """
    make(run, *NAMES)
    run.path.rename(target / "moved")
    shutil.copytree(target / "moved", run.path)
    shutil.rmtree(target / "moved")
    assert clean(run) == []
    assert not any(target.iterdir())


def test_the_run_s_directory_is_known_by_its_word_and_number_on_a_file_system_that_was_mounted_again(run, target):
    device, inode = run.identity
    run.identity = (device + 1, inode)
    make(run, *NAMES)
    assert clean(run) == []
    assert not any(target.iterdir())


@pytest.mark.parametrize("expected_text", ["", '{"run": "another"}'])
def test_a_directory_of_the_same_number_on_another_device_that_is_not_the_run_s_is_not_touched(run, expected_text):
    run.identity = (run.identity[0] + 1, run.identity[1])
    make(run, *NAMES)
    (run.path / OWNER).write_text(expected_text)
    assert clean(run) == [f"{run.path} was not removed: it is no longer the directory that this run made"]
    assert all((run.path / name).read_text() == "ours" for name in NAMES)


def test_a_directory_whose_file_system_is_no_longer_mounted_is_not_called_removed(mount):
    point = mount("tmpfs", 8)
    run = RunDirectory(point, "r1")
    run.create()
    subprocess.run(["umount", str(point)], check=True)
    assert clean(run) == [f"{run.path} was not removed: its file system is not mounted there"]


def test_another_directory_of_the_same_name_is_not_touched(run, target):
    run.path.rename(target / "moved")
    run.path.mkdir()
    make(run, *NAMES)
    assert clean(run) == [f"{run.path} was not removed: it is no longer the directory that this run made"]
    assert all((run.path / name).read_text() == "ours" for name in NAMES)


def test_a_directory_or_a_pipe_with_the_name_of_a_file_stays(run):
    (run.path / NAMES[0]).mkdir(parents=True)
    os.mkfifo(run.path / NAMES[1])
    assert len(clean(run)) == 2
    assert (run.path / NAMES[0]).is_dir()
    assert (run.path / NAMES[1]).is_fifo()


def test_a_file_with_the_name_of_a_directory_stays(run):
    make(run, "m")
    (left,) = clean(run)
    assert left.startswith(str(run.path / "m"))


def test_a_second_name_of_a_file_elsewhere_keeps_its_content(run, tmp_path):
    make(run, *NAMES)
    (tmp_path / "copy").hardlink_to(run.path / NAMES[0])
    assert clean(run) == []
    assert (tmp_path / "copy").read_text() == "ours"


parts = st.sampled_from(["m", "n", "a.pt", "b.pt", "checkpoint-0001", "é ü", CANARY, "OWNER.json"])
paths = st.lists(parts, min_size=1, max_size=3).map("/".join)


@settings(deadline=None, max_examples=examples(60))
@given(known=st.sets(paths, max_size=6), found=st.lists(paths, max_size=8))
def test_clean_up_removes_exactly_the_known_files_of_any_tree(known, found):
    with tempfile.TemporaryDirectory() as home:
        run = RunDirectory(Path(home), "r1")
        run.create()
        for name in found:
            path = run.path / name
            if not path.exists() and all(p.is_dir() or not p.exists() for p in path.parents):
                make(run, name)
        files = {str(p.relative_to(run.path)) for p in run.path.rglob("*") if p.is_file()}
        ours = known | {"OWNER.json"}
        expected = {f for f in files if not (f in ours or f.endswith(CANARY)) or not walkable(f, ours)}
        left = clean(run, known)
        assert {str(p.relative_to(run.path)) for p in run.path.rglob("*") if p.is_file()} == expected
        assert bool(left) == bool(expected) == run.path.exists()


def walkable(file, known):
    """Return whether each directory above a file contains at least one of the run's files ``known``."""
    above = [str(p) for p in Path(file).parents if str(p) != "."]
    return all(any(name.startswith(directory + "/") for name in known) for directory in above)


def test_the_names_of_a_plan_are_those_of_every_file_before_and_after_its_commit(target):
    fields = {"ckpt_engine": "torch", "ckpt_cluster": "16000", "ckpt_model": "llama3-8b", "ckpt_profile": "smoke"}
    names = possible_names(plan_run(resolve(fields, {}), None).runnable)
    storage = posix.target(str(target))
    area = storage.create_area("r1")
    directory = Path(area.location) / "llama3-8b-full"
    files = [f"zero_pp_rank_{r}_mp_rank_0_{kind}_states.pt" for r in range(8) for kind in ("model", "optim")]
    for checkpoint in ("checkpoint-0001", "checkpoint-0002.partial", "checkpoint-0003"):
        (directory / checkpoint).mkdir(parents=True)
        for file in files:
            (directory / checkpoint / file).write_text("ours")
    for stranger in ("checkpoint-0001/notes", "checkpoint-1/notes", "ballast-80-x"):
        (directory / stranger).parent.mkdir(exist_ok=True)
        (directory / stranger).write_text("theirs")
    (directory / "ballast-80-00000").write_text("ours")
    left = storage.clean(area, names, 60.0)
    assert sorted(sentence.partition(" was not removed")[0] for sentence in left) == [
        str(directory / name) for name in ("ballast-80-x", "checkpoint-0001/notes", "checkpoint-1")
    ]
    assert sorted(p.name for p in directory.rglob("*") if p.is_file()) == ["ballast-80-x", "notes", "notes"]


def test_an_area_kept_for_another_launch_is_emptied_and_names_its_owner(target):
    storage = posix.target(str(target))
    area = storage.create_area("r1")
    directory = Path(area.location)
    (directory / "m" / "checkpoint-0001").mkdir(parents=True)
    (directory / "checks" / "COMMIT.file-1").mkdir(parents=True)
    names = Names(files={"m": frozenset(("a.pt",))}, directories=frozenset(("checks",)))
    assert storage.clean(area, names, 60.0, keep_area=True) == []
    assert [p.name for p in directory.iterdir()] == ["OWNER.json"]
    assert storage.clean(area, names, 60.0) == []
    assert not any(target.iterdir())


def test_files_of_the_metadata_suite_of_a_killed_run_are_removed(target):
    words = {"ckpt_cluster": "64", "ckpt_model": "llama3-8b", "ckpt_profile": "smoke", "ckpt_suite": "metadata"}
    planned = plan_run(resolve(words, {}), None).checkpoints
    storage = posix.target(str(target))
    area = storage.create_area("r1")
    tree = PosixStore(Path(area.location)).names_directory(top_directory(planned[0].subject.slug))
    for directory in ("", "group-0000", "group-0000/directory-0000000", "old-checkpoint-0"):
        tree.make_directory(directory)
    for file in ("group-0000/directory-0000000/file-00000000", "old-checkpoint-0/file-00000000"):
        tree.create(file)
    assert storage.clean(area, names_of_run(planned), 60.0) == []
    assert not any(target.iterdir())


def test_the_cleaner_has_more_time_for_many_names(run, monkeypatch):
    given = []
    monkeypatch.setattr(run_directory, "call_in_time", lambda call, asked, seconds: given.append(seconds) or [])
    for many in (0, 1_000_000):
        run_directory.remove_in_time(run.path, run.identity, Names(in_directories=many), 120.0)
    assert given == [120.0, 5120.0]


def test_a_target_that_does_not_answer_holds_the_cleaner_only_until_the_deadline(run, monkeypatch):
    monkeypatch.setattr(run_directory, "REMOVE", "tests.support.targets.hanging:hang")
    names = Names(files={"m": frozenset(("a.pt", "b.pt"))})
    assert run_directory.remove_in_time(run.path, run.identity, names, 0.5) == [
        f"{run.path} stays: the target did not answer for 0.5 s"
    ]


def test_a_target_that_takes_no_directory_is_a_usage_error(target):
    RunDirectory(target, "r1").create()
    with pytest.raises(UsageError, match="No directory can be made on the target"):
        RunDirectory(target, "r1").create()
    assert (target / "pytest-ckpt-r1" / "OWNER.json").exists(), "what another run made stays"


# --- what an earlier run left ----------------------------------------------------------------------------------------


def owned(target, run_id, **owner):
    directory = target / f"pytest-ckpt-{run_id}"
    directory.mkdir()
    mine = {
        "run": run_id,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_began": process_began(os.getpid()),
    }
    (directory / "OWNER.json").write_text(json.dumps(mine | owner))
    return directory


def ended_process():
    return subprocess.run([sys.executable, "-I", "-S", "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True).stdout  # fmt: skip


def test_a_run_whose_controller_lives_is_no_leftover(target):
    RunDirectory(target, "alive").create()
    assert find_leftovers(target) == []


def test_a_run_whose_controller_has_ended_is_a_leftover(target):
    directory = owned(target, "dead", pid=int(ended_process()))
    (found,) = find_leftovers(target)
    assert (found.path, found.run_id, found.host, found.elsewhere) == (directory, "dead", socket.gethostname(), "")


def test_a_clock_that_is_set_makes_no_leftover_of_a_run_that_lives(target, monkeypatch):
    """Setting the clock does not make a running run a leftover, although the computed boot time changes."""
    RunDirectory(target, "alive").create()
    true = psutil.boot_time()
    for module in (psutil, psutil._pslinux):
        monkeypatch.setattr(module, "boot_time", lambda: true + 3600)
    assert find_leftovers(target) == []


def test_a_process_that_only_got_the_number_of_the_controller_does_not_keep_it_alive(target):
    owned(target, "dead", process_began="1.00 s after boot 0")
    assert [found.run_id for found in find_leftovers(target)] == ["dead"]


def test_a_run_of_another_host_is_reported_although_its_state_is_unknown(target):
    owned(target, "far", host="elsewhere")
    (found,) = find_leftovers(target)
    assert (found.run_id, found.host, found.elsewhere) == ("far", "elsewhere", "elsewhere")


def test_files_by_which_hosts_were_to_know_the_target_are_leftovers_of_a_killed_controller(target):
    """Files by which hosts check that they share the target are leftovers only if the controller has ended."""
    sign = sign_of("seen", "same")
    for of in (sign, sign.of_rank(8)):
        (target / of.name).write_text(of.word)
    assert find_leftovers(target) == []
    owner = json.loads(sign.word) | {"pid": int(ended_process())}
    for of in (dead := replace(sign, word=json.dumps(owner)), dead.of_rank(8)):
        (target / of.name).write_text(of.word)
    found = [(left.path.name, left.run_id) for left in find_leftovers(target)]
    assert found == [(".pytest-ckpt-seen.same", "seen"), (".pytest-ckpt-seen.same.8", "seen")]


def test_directories_of_others_are_no_leftovers(target, tmp_path):
    (target / "pytest-ckpt-notes").mkdir()
    (target / "results").mkdir()
    (target / "pytest-ckpt-file").write_text("")
    (target / ".pytest-ckpt-notes").write_text("7" * 10_000)
    owned(tmp_path, "dead", process_began=1.0)
    (target / "pytest-ckpt-link").symlink_to(tmp_path / "pytest-ckpt-dead")
    assert find_leftovers(target) == []


@pytest.mark.parametrize("owner", ["", "[]", "{}", "7", '{"run": 1}', "\xff\xfe"])
def test_an_owner_that_cannot_be_read_is_no_leftover_and_no_error(target, owner):
    directory = owned(target, "broken")
    (directory / "OWNER.json").write_bytes(owner.encode("latin-1"))
    assert find_leftovers(target) == []


@pytest.mark.parametrize("pid", ["x", -5, 10**30, 1.5, None, [1]])
def test_an_owner_with_a_strange_process_is_no_error(target, pid):
    owned(target, "strange", pid=pid, process_began=None)
    find_leftovers(target)
