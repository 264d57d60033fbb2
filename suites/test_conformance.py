"""How the target behaves: what checkpoint software counts on beyond speed, one requirement a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[str], None]


@pytest.mark.requirement("COMMIT")
def test_a_rename_replaces_at_once(subject: str, judge: Judge) -> None:
    """Whoever looks sees the old checkpoint or the new one, never none and never half of one.

    Checkpoints are written under another name and renamed when they are whole. A reader polls while files, and whole
    folders, are replaced thousands of times: a name that is missing for a moment, or a file that is short, is a restore
    that fails at the worst moment.
    """
    judge(subject)


@pytest.mark.requirement("VISIBLE")
def test_what_was_closed_is_read_elsewhere(subject: str, judge: Judge) -> None:
    """A file that one client has closed is read right by another client at its first open.

    Every restore on more than one node relies on it (close-to-open). New files and rewritten ones are tried.
    """
    judge(subject)


@pytest.mark.requirement("STALE")
def test_no_client_works_with_old_names(subject: str, judge: Judge) -> None:
    """One second after a change every client agrees on names, sizes and times, also of names that are new.

    Jobs wait at a barrier and then open what another node has written. A client that remembers for longer what it saw
    before does not find the checkpoint, or finds an old one.
    """
    judge(subject)


@pytest.mark.requirement("EXCLUSIVE")
def test_one_creator_wins(subject: str, judge: Judge) -> None:
    """Of several processes that create the same name exclusively (O_EXCL), exactly one succeeds.

    Software uses such files as locks: two winners write the same checkpoint.
    """
    judge(subject)


@pytest.mark.requirement("DIRECT")
def test_direct_and_buffered_access_agree(subject: str, judge: Judge) -> None:
    """O_DIRECT works in blocks of 512 B and 4 KiB, and sees the same bytes as buffered access.

    Fast writers write blocks directly and append the rest through the cache. Advisory: software falls back.
    """
    judge(subject)


@pytest.mark.requirement("MMAP")
def test_files_can_be_mapped(subject: str, judge: Judge) -> None:
    """Files that are mapped into memory show the right bytes, to many processes at once, without a signal.

    safetensors and torch.load(mmap=True) read that way; a read error then kills the process (SIGBUS).
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


@pytest.mark.requirement("TRUNCATE")
def test_concurrent_truncation_does_not_hang(subject: str, judge: Judge) -> None:
    """Processes that open the same file with O_TRUNC at once all come back soon.

    On one network file system such a job hung for 35 hours.
    """
    judge(subject)


@pytest.mark.requirement("MKDIR")
def test_a_folder_is_made_once_and_seen_by_all(subject: str, judge: Judge) -> None:
    """Of several processes that make the same folder, one makes it and all can create files in it at once.

    Every rank makes the folder of a checkpoint before it writes; one that is told of a folder it then cannot see fails.
    """
    judge(subject)


@pytest.mark.requirement("LARGE")
def test_large_files_keep_their_offsets(subject: str, judge: Judge) -> None:
    """What is written beyond 2 GiB, 4 GiB, 2 TiB and 8 TiB is read there again, and the size is right.

    Saves into a single file grow beyond every limit that a driver once had.
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
    """A process that has a file open reads every byte of it, also when the file is deleted meanwhile.

    Old checkpoints are deleted while another job may still read them. Another client may be told that the file is
    gone (ESTALE); wrong bytes it must not get.
    """
    judge(subject)


@pytest.mark.requirement("DURABLE")
def test_acknowledged_saves_survive(subject: str, judge: Judge) -> None:
    """What a save has acknowledged is there, bit by bit, after a process was killed and after the power was cut.

    The previous checkpoint always loads, and a checkpoint that was broken off never has the name of a whole one. With k
    power cuts and none lost, the chance of a loss is below 3/k (95 %).
    """
    judge(subject)


@pytest.mark.requirement("ERRORS")
def test_success_never_claims_missing_bytes(subject: str, judge: Judge) -> None:
    """When write, fsync and close have returned without an error, the bytes are there; else one of them says so.

    Some storage reports that a quota or volume is full only at fsync or close; storage that reports it nowhere loses
    checkpoints without a word.
    """
    judge(subject)


@pytest.mark.requirement("FULL")
def test_a_full_volume_costs_no_checkpoint(subject: str, judge: Judge) -> None:
    """When the volume fills in mid-save, the previous checkpoint loads, and the next save works once there is space.

    The broken save must not take the name of a whole one, and the error must reach the process that saves.
    """
    judge(subject)


@pytest.mark.requirement("LIVE")
def test_no_call_blocks_for_long(subject: str, judge: Judge) -> None:
    """No call that a checkpoint makes blocks for more than 300 s.

    Every kind of call is timed one by one. A call that does not return is named with the file and what the kernel was
    waiting for.
    """
    judge(subject)


@pytest.mark.requirement("CAPABILITIES")
def test_what_else_the_file_system_offers(subject: str, judge: Judge) -> None:
    """Locks, links, times, free space, names and further calls do what their documentation says.

    A report for operators and for software that uses them. Advisory.
    """
    judge(subject)
