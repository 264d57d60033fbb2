"""Behaviour of the target that checkpoint software relies on, one requirement per test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("COMMIT")
def test_a_rename_replaces_at_once(subject: str, judge: Judge) -> None:
    """During a rename every reader sees the old checkpoint or the new one, never none and never a part of one.

    Checkpoints are written under a temporary name and renamed when complete. A reader polls while files and whole
    folders are replaced thousands of times. A name that is missing for a moment, or a short file, makes a restore
    fail.
    """
    judge(subject)


@pytest.mark.requirement("VISIBLE")
def test_what_was_closed_is_read_elsewhere(subject: str, judge: Judge) -> None:
    """After one client closes a file, another client reads the new bytes at its first open.

    Every restore on more than one node relies on close-to-open consistency. The test uses new and rewritten files.
    Advisory: two clients append records to one file in turn. No record may be unseen, lost or torn.
    """
    judge(subject)


@pytest.mark.requirement("PUBLISH")
def test_who_sees_a_checkpoint_finds_all_of_it(subject: str, judge: Judge) -> None:
    """When another client sees that a checkpoint is committed, it finds every file, whole, within 10 s of the commit.

    Jobs that evaluate or serve a model wait for its next checkpoint and load it at once. The test commits by a marker
    file, by renaming the folder, and by overwriting a file that names the newest checkpoint. The other client looks
    before the commit, opens each file when it sees it, and compares every byte.
    """
    judge(subject)


@pytest.mark.requirement("STALE")
def test_no_client_works_with_old_names(subject: str, judge: Judge) -> None:
    """One second after a change all clients agree on names, sizes and times, including new names.

    Jobs wait at a barrier and then open what another node has written. A client that caches attributes or names for
    longer misses the checkpoint or finds an old one.
    """
    judge(subject)


@pytest.mark.requirement("EXCLUSIVE")
def test_one_creator_wins(subject: str, judge: Judge) -> None:
    """Of several processes that create the same name exclusively (O_EXCL), exactly one succeeds.

    Software uses such files as locks: two winners would write the same checkpoint.
    """
    judge(subject)


@pytest.mark.requirement("DIRECT")
def test_direct_and_buffered_access_agree(subject: str, judge: Judge) -> None:
    """O_DIRECT works in blocks of 512 B and 4 KiB, and sees the same bytes as buffered access.

    Fast writers write whole blocks directly and append the rest through the cache. Advisory: software falls back.
    """
    judge(subject)


@pytest.mark.requirement("MMAP")
def test_files_can_be_mapped(subject: str, judge: Judge) -> None:
    """Memory-mapped files show the right bytes to many processes at once, without a signal.

    safetensors and torch.load(mmap=True) read through mappings; a read error then kills the process (SIGBUS).
    """
    judge(subject)


@pytest.mark.requirement("POINTER")
def test_a_small_file_is_overwritten_without_garbage(subject: str, judge: Judge) -> None:
    """A small file that is overwritten in place shows its old text, its new text or nothing, never a mixture.

    Software keeps the name of the latest checkpoint in such a file.
    """
    judge(subject)


@pytest.mark.requirement("SPARSE")
def test_several_writers_fill_one_file(subject: str, judge: Judge) -> None:
    """Writers that fill different parts of one file, in any order, lose and damage nothing; holes read as zeros.

    Some software saves all ranks' shards into one file, each at its own offset.
    """
    judge(subject)


@pytest.mark.requirement("CLONE-FRESH")
def test_a_copy_of_a_new_file_is_complete(subject: str, judge: Judge) -> None:
    """A copy of a file that was just written contains every byte, even if nothing called fsync.

    Copy tools ask the file system which parts of a file are data, or have it copy or clone the file. A file system
    that ignores data it has not stored yet makes a copy with zeros and reports no error. Advisory.
    """
    judge(subject)


@pytest.mark.requirement("TRUNCATE")
def test_concurrent_truncation_does_not_hang(subject: str, judge: Judge) -> None:
    """Processes that open the same file with O_TRUNC at once all return promptly.

    On one network file system such a job hung for 35 hours.
    """
    judge(subject)


@pytest.mark.requirement("MKDIR")
def test_a_folder_is_made_once_and_seen_by_all(subject: str, judge: Judge) -> None:
    """Of several processes that create the same folder, one succeeds and all can create files in it at once.

    Every rank creates the checkpoint's folder before it writes; a rank that cannot see the new folder fails.
    """
    judge(subject)


@pytest.mark.requirement("LARGE")
def test_large_files_keep_their_offsets(subject: str, judge: Judge) -> None:
    """Data written beyond 2 GiB, 4 GiB, 2 TiB and 8 TiB is read back from the same offsets, and the size is right.

    Saves into a single file exceed the offset limits of old drivers.
    """
    judge(subject)


@pytest.mark.requirement("NAMES")
def test_every_name_is_listed_once(subject: str, judge: Judge) -> None:
    """A folder of 10,000 files lists each name exactly once, and a listing after a change shows the change.

    A listing that drops a name loses a shard; one that shows a removed name fails a clean-up. Creating the files takes
    at most 10 s.
    """
    judge(subject)


@pytest.mark.requirement("UNLINK")
def test_deleting_does_not_disturb_a_reader(subject: str, judge: Judge) -> None:
    """A process that has a file open reads every byte of it, even after the file is deleted.

    Old checkpoints are deleted while another job may still read them. Another client may get ESTALE, but never wrong
    bytes.
    """
    judge(subject)


@pytest.mark.requirement("DURABLE")
def test_acknowledged_saves_survive(subject: str, judge: Judge) -> None:
    """Every acknowledged save is intact after a process was killed and, if its power was cut, after that.

    The previous checkpoint always loads, and an interrupted save never has the name of a complete one. If k power cuts
    lose nothing, at most 1 - 0.05^(1/k) of power cuts lose anything (95 % confidence): 63 % for 3 cuts, 5 % for 59.
    """
    judge(subject)


@pytest.mark.requirement("ERRORS")
def test_success_never_claims_missing_bytes(subject: str, judge: Judge) -> None:
    """If write, fsync and close return without an error, the bytes are stored; otherwise one of them reports the error.

    Some storage reports a full quota or volume only at fsync or close; storage that never reports it loses checkpoints
    silently.
    """
    judge(subject)


@pytest.mark.requirement("FULL")
def test_a_full_volume_costs_no_checkpoint(subject: str, judge: Judge) -> None:
    """If the volume fills during a save, the previous checkpoint loads, and the next save works once there is space.

    The failed save must not get the name of a complete one, and the error must reach the saving process.
    """
    judge(subject)


@pytest.mark.requirement("COMMIT-FULL")
def test_a_commit_without_space_loses_nothing(subject: str, judge: Judge) -> None:
    """When space ends in a commit, the checkpoint before stays, a pointer names it or the new one; saves work again.

    Data may be durable and space be gone when the metadata, the marker or the pointer to the newest checkpoint are
    written. The test takes all space before each of these phases in turn, gives it back and saves again.
    """
    judge(subject)


@pytest.mark.requirement("LIVE")
def test_no_call_blocks_for_long(subject: str, judge: Judge) -> None:
    """No call that a checkpoint makes blocks for more than 300 s.

    Every kind of call is timed on its own. A call that does not return is named, with its file and the kernel's stack.
    """
    judge(subject)


@pytest.mark.requirement("CAPABILITIES")
def test_what_else_the_file_system_offers(subject: str, judge: Judge) -> None:
    """Locks, links, times, free space, names and further calls work as documented.

    A report for operators and for software that uses them. Advisory.
    """
    judge(subject)
