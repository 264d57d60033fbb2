"""The directory of a run on a mounted file system: creates it, identifies it on each host, and removes it."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.across_hosts import HostMount, Marker
from pytest_ckpt.facts.targets import AreaRef, Names, StorageStack, TargetFacts
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.own_names import OWN_NAME, own_name
from pytest_ckpt.targets.owner import OWNER, host_elsewhere, is_alive, owner_of
from pytest_ckpt.targets.posix.names import MARKER, RENAME_REFUSED, is_of_a_checkpoint
from pytest_ckpt.targets.posix.page_cache import inspect_storage
from pytest_ckpt.targets.posix.storage_stack import (
    Mount,
    all_mounts,
    device_number,
    file_of_loop,
    mount_among,
    mount_of,
)
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError, call_in_time, watched

if TYPE_CHECKING:
    from collections.abc import Collection


# File systems with stable inode numbers on every client; on others the number of an existing directory may change.
_KEEP_NUMBERS = frozenset(
    ("btrfs", "ceph", "ext2", "ext3", "ext4", "f2fs", "gpfs", "lustre", "nfs", "nfs4", "xfs", "zfs")
)

_LOOP = "/dev/loop"
_DEVICES = Path("/sys/class/block")

SIGN_PREFIX = ".pytest-ckpt-"

_POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectoryIdentity:
    """The identity of a directory: its path, its mount, and its inode number.

    ``number`` is the inode number, or 0 if clients of this file system may see different inode numbers. ``is_there`` is
    true if the path exists, on any mount. ``covered`` lists mounts inside the directory; a run itself creates no
    mounts.
    """

    directory: str
    mount_point: str
    file_system: str
    source: str
    number: int = 0
    is_there: bool = True
    covered: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return a phrase that describes the directory, its mount and the mounts inside it."""
        where = f"{self.directory} on {self.mount_point} ({self.file_system} of {self.source})"
        where += f", number {self.number}" if self.number else ""
        return where + "".join(f", with {mount} mounted in it" for mount in self.covered)

    @property
    def _mount(self) -> tuple[str, str, str]:
        # A file that is mounted again may have another loop device.
        source = _LOOP if self.source.startswith(_LOOP) else self.source
        return self.mount_point, self.file_system, source

    def is_same(self, other: DirectoryIdentity) -> bool:
        """Return whether two identities are of the same directory: the same mount, and the same mounts inside.

        If both identities have an inode number, the numbers must be equal too.
        """
        is_known = self.number and other.number
        is_other = bool(is_known) and self.number != other.number
        return (self._mount, self.covered) == (other._mount, other.covered) and not is_other


def directory_identity(directory: Path) -> DirectoryIdentity:
    """Return the identity of the directory at a path. The directory need not exist."""
    mounts = all_mounts()
    mount = mount_among(mounts, directory)
    try:
        number, is_there = directory.stat().st_ino, True
    except OSError:
        number, is_there = 0, False
    return DirectoryIdentity(
        directory=str(directory),
        mount_point=mount.mount_point,
        file_system=mount.file_system,
        source=_image_below(mount) or mount.source,
        number=number if mount.file_system in _KEEP_NUMBERS else 0,
        is_there=is_there,
        covered=tuple(_mounts_in(directory, mounts)),
    )


def _mounts_in(directory: Path, mounts: Iterable[Mount]) -> Iterator[str]:
    """Yield a phrase for each mount inside a directory: mount point, file system and source."""
    for mount in mounts:
        if mount.mount_point.startswith(f"{directory}/"):
            yield f"{mount.mount_point} ({mount.file_system} of {mount.source})"


def _image_below(mount: Mount) -> str:
    """Return the backing file of a mount's loop device; return an empty text if the mount is not on a loop device.

    Only the path of the backing file identifies the storage. The number of the loop device may change, and a copy of
    the backing file contains the same directories and inode numbers.
    """
    if not mount.source.startswith(_LOOP):
        return ""
    return file_of_loop((_DEVICES / Path(mount.source).name).resolve())


def is_of_area(standing: DirectoryIdentity, area: AreaRef) -> bool:
    """Return whether a directory may be the directory that was created for a run.

    The result is False only if both inode numbers are known and differ.
    """
    made = area.identity[1] if len(area.identity) > 1 else ""
    return not standing.number or not made or str(standing.number) == made


def describe_change(before: DirectoryIdentity, now: DirectoryIdentity) -> str:
    """Return a phrase for an error if the run's directory was replaced by another one; return an empty text if not.

    A missing directory is not a replacement here, because other calls report a missing directory.
    """
    if not now.is_there or now.is_same(before):
        return ""
    return f"the run's directory was {before.describe()}; now it is {now.describe()}"


def sign_of(run_id: str, what: str) -> Marker:
    """Return the name and the unique content of a marker file, by which other hosts recognize the target.

    The file is not written here. Its content names the run: if the controller is killed, the run of the remaining file
    is known.
    """
    owner = owner_of(run_id) | {"word": secrets.token_hex(16)}
    return Marker(name=f"{SIGN_PREFIX}{run_id}.{what}", word=json.dumps(owner))


class PosixAreaView:
    """The directory of a run's area, as seen by this host."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def is_directory(self) -> bool:
        """Whether the directory exists."""
        return self._directory.is_dir()

    @property
    def mount(self) -> HostMount:
        """The mount that contains the directory.

        The directory is accessed first, because an automounter may have to mount it.
        """
        with contextlib.suppress(OSError):
            os.statvfs(self._directory)
        mount = mount_of(self._directory.resolve())
        return HostMount(kind=mount.file_system, source=mount.source, options=mount.options)

    @property
    def storage(self) -> StorageStack:
        """The layers of storage below the directory, and the caches whose pages cannot be counted."""
        return inspect_storage(self._directory)

    @property
    def free_bytes(self) -> int:
        """The free space for this process in bytes; 0 if the directory does not exist."""
        try:
            space = os.statvfs(self._directory)
        except OSError:
            return 0
        return space.f_bavail * space.f_frsize

    @property
    def device(self) -> str:
        """The device of the directory's file system in the kernel's form ``major:minor``. Raises OSError."""
        return device_number(self._directory.stat())

    @contextlib.contextmanager
    def shown(self, sign: Marker) -> Iterator[str]:
        """Create the marker file ``sign`` that other hosts look for; remove it at the end of the ``with`` block.

        Yield an empty text, or the reason why the file cannot be created.
        """
        try:
            yield self._creation_failure(sign)
        finally:
            with contextlib.suppress(OSError):
                (self._directory / sign.name).unlink(missing_ok=True)

    def instead_of(self, sign: Marker, seconds: float) -> str:
        """Look for another host's marker file ``sign`` for at most ``seconds``.

        Return an empty text if the file was found, otherwise the reason. On a local file system, other hosts cannot
        create files; one look is then sufficient.
        """
        end = 0.0 if mount_of(self._directory.resolve()).is_local else time.monotonic() + seconds
        while True:
            try:
                if (self._directory / sign.name).read_text(errors="replace") == sign.word:
                    return ""
                difference = "another text in it"
            except OSError as error:
                difference = error.strerror or str(error)
            if time.monotonic() > end:
                return difference
            time.sleep(_POLL_SECONDS)

    def _creation_failure(self, sign: Marker) -> str:
        try:
            with (self._directory / sign.name).open("x") as file:
                file.write(sign.word)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return error.strerror or str(error)
        return ""


PREFIX = "pytest-ckpt-"
_MAXIMUM_WORD = 4096
# Ranks create canaries, and the controller creates one to test whether a target answers. A file ``same-*`` shows
# whether a second client has the same storage.
_TEST_FILE = re.compile(f"(?:canary|same)-{OWN_NAME}")

REMOVE = "pytest_ckpt.targets.posix.run_directory:remove_in_process"

_NO_FILE = "."

# Removing a million names takes longer than the timeout for an unresponsive target, so each name adds to the timeout.
_REMOVE_SECONDS_OF_A_NAME = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierRunEntry:
    """An entry of an earlier run on the target: the run's directory, or a marker file for other hosts.

    The run's controller has ended, or ran on the other host ``elsewhere``. If it ran on this host, ``elsewhere`` is
    empty. This host cannot check a process on another host.
    """

    path: Path
    run_id: str
    host: str
    elsewhere: str


def place_on_this_host(facts: TargetFacts) -> Path | None:
    """Return the path of a target with symbolic links resolved; None if the target has no path."""
    if "paths" not in facts.capabilities:
        return None
    return watched(facts.location, lambda: Path(facts.location).resolve())


def directory_of(area: AreaRef) -> Path:
    """Return the path of an area on a mounted file system."""
    return Path(area.location)


def check_file_calls(directory: Path) -> None:
    """Test a run's directory: write, fsync, read and remove a file. Raises OSError if the storage refuses a call."""
    file = directory / f"canary-{own_name()}"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, bytes(mmap.PAGESIZE))
            os.fsync(descriptor)
            os.pread(descriptor, mmap.PAGESIZE, 0)
        finally:
            os.close(descriptor)
    finally:
        with contextlib.suppress(OSError):
            file.unlink()


def refuses_to_rename(directory: Path) -> bool:
    """Return whether the file system refuses to rename a directory that contains a file. The test uses ``directory``.

    Other errors are ignored here, because the run reports them when they occur again.
    """
    before = directory / f"rename-{own_name()}"
    after, name = before.with_suffix(".renamed"), "file"
    try:
        before.mkdir()
        (before / name).touch()
        before.rename(after)
    except OSError as error:
        return error.errno in RENAME_REFUSED
    finally:
        for place in (before, after):
            with contextlib.suppress(OSError):
                (place / name).unlink()
            with contextlib.suppress(OSError):
                place.rmdir()
    return False


def find_leftovers(target: Path) -> list[EarlierRunEntry]:
    """Return directories and marker files of earlier runs whose controller has ended or ran on another host."""
    words = [(entry, entry / OWNER) for entry in sorted(target.glob(f"{PREFIX}*"))]
    words += [(entry, entry) for entry in sorted(target.glob(f"{SIGN_PREFIX}*"))]
    leftovers = []
    for entry, word in words:
        try:
            with word.open() as file:
                owner = json.loads(file.readline(_MAXIMUM_WORD))
            run_id, host, alive = owner["run"], owner["host"], is_alive(owner)
            elsewhere = host_elsewhere(owner)
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            continue
        if entry.is_symlink() or alive:
            continue
        leftovers.append(EarlierRunEntry(path=entry, run_id=str(run_id), host=str(host), elsewhere=elsewhere))
    return leftovers


class RunDirectory:
    """The directory of one run on the target."""

    def __init__(self, target: Path, run_id: str) -> None:
        self.path = target.resolve() / f"{PREFIX}{run_id}"
        self.run_id = run_id
        self.identity: tuple[int, ...] = ()

    def create(self, word: str = "") -> tuple[int, ...]:
        """Create the directory, write its owner's record, and return its identity: (device, inode number).

        ``word`` is the text of the owner's record; by default the record names this process. If the target refuses a
        call, the directory is removed and UsageError is raised.
        """
        word = word or owner_record(self.run_id)
        try:
            self.path.mkdir(mode=0o700)
            status = self.path.stat()
            self.identity = (status.st_dev, status.st_ino)
            (self.path / OWNER).write_text(word)
            return self.identity
        except OSError as error:
            remove(self.path, self.identity, ())
            raise UsageError(
                f"No directory can be made on the target: {self.path}: {error.strerror}.",
                "Make the target writable and give it space.",
            ) from error


def owner_record(run_id: str) -> str:
    """Return the text of the owner's record of a run's directory, with this process as the owner."""
    return json.dumps(owner_of(run_id)) + "\n"


def remove_begun(path: Path) -> None:
    """Remove the directory of a run that has just begun. Errors are ignored."""
    with contextlib.suppress(OSError):
        status = path.stat()
        remove(path, (status.st_dev, status.st_ino), ())


def remove(path: Path, identity: Sequence[int], names: Collection[str], *, keep_directory: bool = False) -> list[str]:
    """Remove a run's directory with the run's files. Return one sentence for each entry that remains.

    ``identity`` is (device, inode number) of the directory at its creation. If one of the two numbers has changed, the
    directory is removed only if it contains this run's owner's record. If both numbers have changed, the directory is
    kept. ``names`` are the paths of all files that the run may have created, relative to the directory. A name that
    ends in ``/`` is a directory; all of its content is removed. If ``keep_directory`` is true, the directory and its
    owner's record are kept.
    """
    if not identity:
        return []
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        device, _ = identity
        return [] if _is_on(path.parent, device) else [f"{path} was not removed: its file system is not mounted there"]
    except OSError as error:
        return [f"{path} was not removed: {error.strerror}"]
    try:
        status = os.fstat(top)
        # FUSE file systems renumber a directory after the kernel has dropped it; device and owner's record remain. A
        # file system that is mounted again after a power cut may have another device; inode number and owner's record
        # remain.
        device, inode = identity
        alike = (status.st_dev == device) + (status.st_ino == inode)
        if not alike or (alike == 1 and not _has_owner_record(top, path.name.removeprefix(PREFIX))):
            return [f"{path} was not removed: it is no longer the directory that this run made"]
        left = _clear(top, "", frozenset(names) | (frozenset() if keep_directory else {OWNER}))
    finally:
        os.close(top)
    if not keep_directory and not left:
        try:
            path.rmdir()
        except FileNotFoundError:
            return []
        except OSError as error:
            return [f"{path} was not removed: {error.strerror}"]
    return [f"{path / name} was not removed: {why}" for name, why in left if not (keep_directory and name == OWNER)]


def _is_on(directory: Path, device: int) -> bool:
    """Return whether a directory is on the file system with the device number ``device``.

    If a FUSE server ends, its mount may disappear. The same path is then on another file system.
    """
    try:
        return directory.stat().st_dev == device
    except OSError:
        return False


def _has_owner_record(directory: int, run_id: str) -> bool:
    """Return whether an open directory contains the owner's record of this run."""
    try:
        with open(OWNER, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, dir_fd=directory)) as file:
            return bool(json.load(file)["run"] == run_id)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _clear(directory: int, prefix: str, names: frozenset[str]) -> list[tuple[str, str]]:
    """Remove known files below an open directory. Remove their subdirectories too, if these are then empty.

    Return (path, reason) of each remaining entry. ``prefix`` is the open directory's path relative to the run's
    directory. ``names`` are the paths of the known files, also relative to the run's directory. A name that ends in
    ``/`` is a directory; all of its content is removed.
    """
    left: list[tuple[str, str]] = []
    for name in sorted(os.listdir(directory), key=MARKER.__eq__):
        path = prefix + name
        if name == MARKER and left:
            # Files of the checkpoint remain, so its commit file is kept too.
            continue
        try:
            mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode) and path + "/" in names:
                # By descriptors and without following links, like all calls here.
                shutil.rmtree(name, dir_fd=directory)
            elif stat.S_ISDIR(mode) and any(known.startswith(path + "/") for known in names):
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
                try:
                    inside = _clear(below, path + "/", names)
                finally:
                    os.close(below)
                left += inside
                if not inside:
                    os.rmdir(name, dir_fd=directory)
            elif stat.S_ISREG(mode) and (path in names or _TEST_FILE.fullmatch(name)):
                os.unlink(name, dir_fd=directory)
            else:
                left.append((path, "this run did not make it"))
        except OSError as error:
            left.append((path, error.strerror or str(error)))
    return left


def remove_in_time(
    directory: Path, identity: Sequence[int], names: Names, seconds: float, *, keep_directory: bool = False
) -> list[str]:
    """Remove a run's directory in another process, so that an unresponsive target cannot block this process.

    Return one sentence for each entry that remains. If the target does not answer or refuses the removal, return one
    sentence for the whole directory. If ``keep_directory`` is true, only the content of the directory is removed.
    """
    request = {
        "directory": str(directory),
        "identity": list(identity),
        "checkpoints": {subject: sorted(files) for subject, files in names.files.items()},
        "other_files": {subject: sorted(files) for subject, files in names.other_files.items()},
        "directories": sorted(names.directories),
        "keep_directory": keep_directory,
    }
    seconds += names.in_directories * _REMOVE_SECONDS_OF_A_NAME
    try:
        left: list[str] = call_in_time(REMOVE, request, seconds)
    except NoAnswerError:
        return [f"{directory} stays: the target did not answer for {seconds:g} s"]
    except RefusedError:
        return [f"{directory} was not removed"]
    return left


def remove_in_process(request: Mapping[str, Any]) -> list[str]:
    """Remove a run's directory; return one sentence for each entry that remains.

    `remove_in_time` starts a process that calls this function.
    """
    directory = Path(request["directory"])
    names = {f"{name}/" for name in request["directories"]}
    names |= {f"{subject}/{file}" for subject, files in request["other_files"].items() for file in files}
    for subject, files in request["checkpoints"].items():
        names |= {
            f"{subject}/{checkpoint}/{file}"
            for checkpoint in _checkpoints(directory / subject)
            for file in (*files, MARKER)
        }
        # An empty directory of a subject is not implied by a file name.
        names.add(f"{subject}/{_NO_FILE}")
    return remove(directory, request["identity"], names, keep_directory=request["keep_directory"])


def _checkpoints(directory: Path) -> Iterator[str]:
    """Yield the names of the checkpoints' directories in the directory of one subject (such as a model)."""
    entries: Iterable[str] = ()
    with contextlib.suppress(OSError):
        entries = [entry.name for entry in directory.iterdir()]
    yield from filter(is_of_a_checkpoint, entries)
