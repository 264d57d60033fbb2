"""Behaviour of the target that checkpoint software relies on, one requirement per test."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.judging.behaviour import creates_in_time, with_cache_promise, without_anomaly
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.judging.service_levels import survival_level
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.facts.observation import Observation
    from pytest_ckpt.judging.decision import Decision
    from pytest_ckpt.sizing.plan import FilesOfHost

_CLIENTS = (
    "Look at the mount options that let a client keep names, attributes or data (NFS: actimeo, noac, lookupcache)."
)
_FAILURES = {"rank-killed": "a killed process", "power-cut": "a power cut of the target"}
_REPRODUCE = 'Run the command after "to reproduce", then look at mount options and server log.'


@requirement(
    "COMMIT",
    title="A rename replaces a name in one step",
    source="POSIX rename(); relied on by torch DCP, Megatron-Core, Orbax, Hugging Face",
    needs=("paths",),
    next_step=_REPRODUCE,
    help="A check of the target's behaviour failed",
)
def test_a_rename_is_atomic(observation: Observation, maximum: float | None) -> Decision:
    """During a rename every reader sees the old checkpoint or the new one, and never a missing or partial one.

    Checkpoints are written under a temporary name and renamed when complete. In the test, files and whole directories
    are replaced thousands of times while a reader opens them repeatedly. If a name is missing for a moment, or a file
    is too short, a restore fails.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "VISIBLE",
    title="A closed file is read correctly on another client",
    source="close-to-open consistency (NFS); IO500 rule 2; storage acceptance list of NVIDIA, N-011",
    needs=("paths",),
    next_step=_CLIENTS,
    help="STALE, VISIBLE, NAMES on NFS",
    also_known_as=("NVIDIA N-011", "IO500 rule 2"),
)
def test_a_closed_file_is_read_on_another_client(observation: Observation, maximum: float | None) -> Decision:
    """After one client closes a file, another client reads the new bytes at its first open.

    Every restore on more than one node relies on this property (close-to-open consistency). The test uses new and
    rewritten files. In an advisory part of the test, two clients take turns to append records to one file. No record
    may be missing or damaged.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "PUBLISH",
    title="A visible checkpoint is complete",
    severity="advisory",
    source="our limit: 10 s from the commit; close-to-open consistency (NFS)",
    needs=("paths",),
    next_step=_CLIENTS,
    help="A check of the target's behaviour failed",
)
def test_a_visible_checkpoint_is_complete(observation: Observation, maximum: float | None) -> Decision:
    """If another client sees that a checkpoint is committed, it sees every file complete within 10 s of the commit.

    Jobs that evaluate or serve a model wait for its next checkpoint and load it immediately. The test uses three kinds
    of commit: a marker file, a rename of the directory, and an overwritten file that names the newest checkpoint. The
    other client looks for the checkpoint before the commit, opens each file as soon as the file is visible, and
    compares every byte.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "STALE",
    title="No client works with old names or attributes",
    severity="advisory",
    source="our limit: 1 s; storage acceptance list of NVIDIA, HSS17, N-011 and N-012",
    needs=("paths",),
    next_step=_CLIENTS,
    help="STALE, VISIBLE, NAMES on NFS",
    also_known_as=("NVIDIA HSS17", "NVIDIA N-012 (check attributes)"),
)
def test_no_client_uses_stale_names(observation: Observation, maximum: float | None) -> Decision:
    """One second after a change, all clients see the same names (including new names), sizes and times.

    Jobs wait at a barrier and then open a file from another node. A client that caches attributes or names for longer
    does not see the checkpoint, or sees an old one. The verdict states the measured time, the caching time set by the
    client's mount options, and the option that shortens the caching time.
    """
    return with_cache_promise(without_anomaly(observation, maximum), observation)


@requirement(
    "EXCLUSIVE",
    title="One creator wins",
    severity="advisory",
    source="POSIX open(O_CREAT | O_EXCL); relied on by NVRx",
    needs=("paths",),
    next_step=_REPRODUCE,
    help="A check of the target's behaviour failed",
)
def test_exactly_one_creator_succeeds(observation: Observation, maximum: float | None) -> Decision:
    """Of several processes that create the same name exclusively (O_EXCL), exactly one succeeds.

    Software uses such files as locks. If two processes succeeded, both would write the same checkpoint.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "DIRECT",
    title="Direct and buffered access agree",
    severity="advisory",
    source="open(2): O_DIRECT; relied on by the fast writer of DeepSpeed",
    needs=("paths",),
    next_step="Keep buffered and direct access to one file apart, or use a client on which both agree.",
    help="A check of the target's behaviour failed",
)
def test_direct_and_buffered_access_agree(observation: Observation, maximum: float | None) -> Decision:
    """O_DIRECT works in blocks of 512 B and 4 KiB, and sees the same bytes as buffered access.

    Fast writers write whole blocks with O_DIRECT, and the remaining bytes through the page cache. Advisory: software
    can use buffered access instead.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "MMAP",
    title="Files can be mapped",
    source="POSIX mmap(); relied on by safetensors and torch.load(mmap=True)",
    needs=("paths",),
    next_step=_REPRODUCE,
    help="A check of the target's behaviour failed",
)
def test_files_can_be_mapped(observation: Observation, maximum: float | None) -> Decision:
    """Many concurrent processes read the correct bytes through memory mappings, and none is ended by a signal.

    safetensors and torch.load(mmap=True) read through mappings; a read error then kills the process (SIGBUS).
    """
    return without_anomaly(observation, maximum)


@requirement(
    "POINTER",
    title="A small file is overwritten without garbage",
    source="relied on by DeepSpeed (latest) and Megatron (tracker file)",
    needs=("paths",),
    next_step=_REPRODUCE,
    help="A check of the target's behaviour failed",
)
def test_a_small_file_is_overwritten_without_garbage(observation: Observation, maximum: float | None) -> Decision:
    """While a small file is overwritten in place, it has its old text, its new text or no bytes, never a mixture.

    Software keeps the name of the latest checkpoint in such a file.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "SPARSE",
    title="Several writers fill one file",
    severity="advisory",
    source="POSIX pwrite(); relied on by DataStates",
    needs=("paths",),
    next_step=_REPRODUCE,
    help="A check of the target's behaviour failed",
)
def test_several_writers_fill_one_file(observation: Observation, maximum: float | None) -> Decision:
    """If several writers write different parts of one file, in any order, no byte is lost or damaged.

    Parts that were never written (holes) read as zeros. Some software saves all ranks' shards into one file, each at a
    separate offset.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "CLONE-FRESH",
    title="A copy of a new file is complete",
    severity="advisory",
    source="lseek(2): SEEK_DATA, copy_file_range(2), FICLONE; OpenZFS issue 15526: copies of new files had zeros",
    needs=("paths",),
    next_step="Call fsync before a new file is copied, or copy by read and write; request a version without this bug.",
    help="A check of the target's behaviour failed",
)
def test_a_copy_of_a_new_file_is_complete(observation: Observation, maximum: float | None) -> Decision:
    """A copy of a file that was just written contains every byte, even if the writer has not called fsync.

    Copy tools ask the file system which parts of a file contain data, or let the file system copy or clone the file.
    Some file systems ignore data that is not yet on the storage. The copy then contains zeros, and no error is
    reported. Advisory.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "TRUNCATE",
    title="Concurrent truncation does not hang",
    severity="advisory",
    source="seen on NFS: a truncating open that hung for 35 h; our limit: 30 s",
    needs=("paths",),
    next_step=_REPRODUCE,
    help="A check of the target's behaviour failed",
)
def test_concurrent_truncation_does_not_hang(observation: Observation, maximum: float | None) -> Decision:
    """If processes concurrently open the same file with O_TRUNC, all opens return promptly.

    On one network file system, a job that did this hung for 35 hours.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "MKDIR",
    title="A directory is created once and visible to all",
    source="POSIX mkdir(); relied on by every framework",
    needs=("paths",),
    next_step=_REPRODUCE,
    help="A check of the target's behaviour failed",
)
def test_a_directory_is_created_once_and_usable_by_all(observation: Observation, maximum: float | None) -> Decision:
    """Of several processes that create the same directory, one succeeds and all can immediately create files in it.

    Every rank creates the checkpoint's directory before it writes; a rank that cannot see the new directory fails.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "LARGE",
    title="Large files keep their offsets",
    source="POSIX lseek() and pwrite(); relied on by saves into one file",
    needs=("paths",),
    next_step=_REPRODUCE,
    help="A check of the target's behaviour failed",
)
def test_large_files_are_read_at_their_offsets(observation: Observation, maximum: float | None) -> Decision:
    """Data written beyond 2 GiB, 4 GiB, 2 TiB and 8 TiB is read back from the same offsets, and the size is right.

    Saves into a single file exceed the offset limits of old drivers.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "NAMES",
    title="Every name is listed, once",
    source="POSIX readdir(); the save limit, to create a host's files (NVIDIA's N-013a requires 1,000,000 files)",
    needs=("paths",),
    next_step="If a name was missing or came twice, look at mount options that let a client keep names (NFS: actimeo, "
    "lookupcache). If the creation took too long, look at the metadata server and the time of a round trip to it.",
    help="STALE, VISIBLE, NAMES on NFS",
)
def test_every_name_is_listed_once(observation: Observation, files_of_host: FilesOfHost | None) -> Decision:
    """A directory of 10,000 files lists each name exactly once, and a listing after a change shows the change.

    If a listing omits a name, a restore misses a shard. If a listing shows a removed name, a clean-up fails. The test
    also measures the rate at which one client creates files. At this rate, each host of the run must be able to create
    all of its files of one checkpoint within the save limit.
    """
    return creates_in_time(without_anomaly(observation, None), observation, files_of_host)


@requirement(
    "UNLINK",
    title="Deleting does not disturb a reader",
    source="POSIX unlink(); relied on by retention of old checkpoints",
    needs=("paths",),
    next_step=_REPRODUCE,
    help="A check of the target's behaviour failed",
)
def test_deleting_does_not_disturb_a_reader(observation: Observation, maximum: float | None) -> Decision:
    """A process that has a file open reads every byte of the file, even after the file is deleted.

    Old checkpoints are deleted while another job may still read them. If another client deletes the file, the read may
    fail with ESTALE, but never returns wrong bytes.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "DURABLE",
    title="Acknowledged saves survive",
    source="POSIX fsync(): no loss; IO500 rule 6",
    needs=("paths",),
    next_step="Check which component stores an acknowledged byte: a volatile write cache must be off or backed by "
    "power.",
    help="DURABLE, DURABLE-CALLS: acknowledged bytes may be lost",
)
def test_acknowledged_saves_survive(observation: Observation, maximum: float | None) -> Decision:
    """Every acknowledged save is intact after its process was killed, and after each power cut that the run makes.

    The previous checkpoint always loads, and an interrupted save never has the name of a complete one. If k power cuts
    lose no data, at most 1 - 0.05^(1/k) of power cuts lose data (95 % confidence): 63 % for 3 cuts, 5 % for 59.
    """
    decision = without_anomaly(observation, maximum)
    if decision.outcome != "met":
        return decision
    failures = f"{_FAILURES.get(observation.subject, observation.subject)} ({counted(observation.trials, 'trial')})"
    level = survival_level(failures, "drives, controllers and servers, which FAILOVER breaks")
    return replace(decision, detail=(*decision.detail, level))


@requirement(
    "ERRORS",
    title="Success never claims missing bytes",
    source="POSIX write(), fsync(), close()",
    needs=("paths",),
    next_step=_REPRODUCE,
    help="A check of the target's behaviour failed",
)
def test_acknowledged_bytes_are_never_missing(observation: Observation, maximum: float | None) -> Decision:
    """If write, fsync and close return no error, the bytes are stored; otherwise one of them returns the error.

    Some storage reports a full quota or volume only at fsync or close. Storage that never reports the error loses
    checkpoints, and the job does not notice the loss.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "FULL",
    title="A full volume costs no checkpoint",
    source="our acceptance case: the previous checkpoint stays, the next save works",
    needs=("paths",),
    next_step="Keep the volume from filling (quota, retention). The storage must refuse a write that it cannot store.",
    help="FULL, COMMIT-FULL: a full volume damages checkpoints",
)
def test_a_full_volume_loses_no_checkpoint(observation: Observation, maximum: float | None) -> Decision:
    """If the volume fills during a save, the previous checkpoint loads, and the next save works once there is space.

    The failed save must not have the name of a complete save, and the error must reach the saving process.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "COMMIT-FULL",
    title="A commit without space loses no data",
    source="our acceptance case: the previous checkpoint and the pointer stay, the next save works",
    needs=("paths",),
    next_step="Keep the volume from filling (quota, retention), and find out which calls need space to change a name.",
    help="FULL, COMMIT-FULL: a full volume damages checkpoints",
)
def test_a_commit_without_space_loses_nothing(observation: Observation, maximum: float | None) -> Decision:
    """If the volume is full during a commit, the previous checkpoint remains, and saves work after space is freed.

    A save has four phases: the data, the metadata, the marker, and the pointer (the file that names the newest
    checkpoint). The volume can become full when the data are durable, but the later phases are not. The test fills the
    volume before each phase in turn. The pointer must then name the previous checkpoint or the new one. The test frees
    the space and saves again.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "LIVE",
    title="No call blocks for long",
    source="our acceptance case: at most 300 s",
    needs=("paths",),
    next_step="Look at the named call and path, at dmesg, the server and the network at that time.",
    help="A check of the target's behaviour failed",
)
def test_no_call_blocks_for_long(observation: Observation, maximum: float | None) -> Decision:
    """No call that a checkpoint makes blocks for more than 300 s.

    Every kind of call is timed separately. If a call does not return, the report shows the call, its file and the
    kernel's stack.
    """
    return without_anomaly(observation, maximum)


@requirement(
    "CAPABILITIES",
    title="What else the file system offers",
    severity="advisory",
    source="features that frameworks and operators use; storage acceptance list of NVIDIA, HSS14 and N-010 (locks)",
    needs=("paths",),
    next_step=_REPRODUCE,
    help="A check of the target's behaviour failed",
    also_known_as=("NVIDIA HSS14 (check flock)", "NVIDIA N-010 (check flock-second-client)"),
)
def test_file_system_capabilities(observation: Observation, maximum: float | None) -> Decision:
    """Locks, links, times, free space, names and further calls work as documented.

    These results are for operators and for software that uses such calls. Advisory.
    """
    return without_anomaly(observation, maximum)
