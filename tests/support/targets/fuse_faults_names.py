"""Faults of names: non-atomic renames, wrong listings, non-exclusive creation, stale names."""

from __future__ import annotations

import errno
import os
import stat
import time

from tests.support.targets.fuse_faults import SECOND, Fault, is_file
from tests.support.targets.fuse_nodes import Attributes


class RenameLeavesAGap(
    Fault,
    name="rename of a file is not atomic: no name",
    fails="COMMIT.file COMMIT.file-second-client",
    expected_text="name missing during a rename",
    may="COMMIT-FULL.each-phase CAPABILITIES.links STALE.names CAPABILITIES.names",
):
    """During a rename of a file over another file, the new name is missing for a moment."""

    seconds = 0.003

    def begin(self):
        self.moving: set[tuple[int, bytes]] = set()

    def lookup(self, proceed, call, parent, name):
        if (parent.id, name) in self.moving:
            raise FileNotFoundError(errno.ENOENT, "it was renamed")
        return proceed(call, parent, name)

    def rename(self, proceed, call, old, old_name, new, new_name, flags):
        if flags or not is_file(new, new_name) or not is_file(old, old_name):
            proceed(call, old, old_name, new, new_name, flags)
            return
        self.hit()
        with self.fs.volatile.names:
            self.fs.unlink(call, new, new_name)
            self.moving.add((old.id, old_name))
            # During a rename, the kernel blocks lookups, so the call is answered first and the gap continues after it.
            call.acknowledge()
            time.sleep(self.seconds)
            proceed(call, old, old_name, new, new_name, 0)
            self.moving.discard((old.id, old_name))


class RenameShowsAPart(
    Fault,
    name="rename of a file is not atomic: short content",
    fails="COMMIT.file COMMIT.file-second-client",
    expected_text="file too short during a rename",
    may="PUBLISH.marker COMMIT-FULL.each-phase CAPABILITIES.links STALE.names CAPABILITIES.names",
):
    """For a moment after a rename, the file has only the first half of its bytes."""

    seconds = 0.005

    def rename(self, proceed, call, old, old_name, new, new_name, flags):
        node = self.fs.nodes.find(old, old_name)
        self.remember(node.id)
        self.fs.nodes.unpin(node)
        proceed(call, old, old_name, new, new_name, flags)

    def attributes(self, proceed, call, node):
        known: Attributes = proceed(call, node)
        if not self.recall(node.id):
            return known
        self.hit()
        return known._replace(size=known.size // 2)

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        if not self.recall(handle.node.id):
            return data
        return data[: max(os.fstat(handle.fd).st_size // 2 - offset, 0)]


class DirectoryArrivesInParts(
    Fault,
    name="rename of a directory is not atomic",
    fails="COMMIT.directory COMMIT.directory-second-client",
    expected_text="during a rename",
    # These checks commit a checkpoint by the rename of its directory.
    may="DURABLE.power-cut DURABLE.rank-killed FULL.mid-save COMMIT-FULL.each-phase LIVE.calls",
):
    """After a rename of a directory, its entries appear one after another."""

    seconds = 0.2

    def begin(self):
        self.arriving: dict[int, float] = {}

    def rename(self, proceed, call, old, old_name, new, new_name, flags):
        node = self.fs.nodes.find(old, old_name)
        self.arriving[node.id] = time.monotonic()
        self.fs.nodes.unpin(node)
        proceed(call, old, old_name, new, new_name, flags)

    def list(self, proceed, call, handle):
        found = proceed(call, handle)
        share = (time.monotonic() - self.arriving.get(handle.node.id, 0)) / self.seconds
        if share >= 1 or not found:
            return found
        self.hit()
        return found[: int(len(found) * share)]


class _ManyNames(Fault):
    """Base class: listings of a directory with at least ``at_least`` names are wrong."""

    at_least = 8

    def list(self, proceed, call, handle):
        found = proceed(call, handle)
        if len(found) < self.at_least:
            return found
        self.hit()
        return self.wrong(found)


class RefusesToRenameDirectories(
    Fault,
    name="rename of a directory is refused",
    fails="COMMIT.directory COMMIT.directory-second-client",
    expected_text="rename of a directory is refused",
    # These checks commit a checkpoint by the rename of its directory.
    may="DURABLE.power-cut DURABLE.rank-killed FULL.mid-save COMMIT-FULL.each-phase LIVE.calls PUBLISH.directory",
):
    """The rename of a directory fails with EMFILE, as on gcsfuse without the option rename-dir-limit.

    With ``files``, the rename of a file also fails, as on mountpoint-s3.
    """

    files = False

    def rename(self, proceed, call, old, old_name, new, new_name, flags):
        if self.files or stat.S_ISDIR(os.stat(old_name, dir_fd=old.fd, follow_symlinks=False).st_mode):
            self.hit()
            raise OSError(errno.EMFILE, "too many objects to be renamed")
        proceed(call, old, old_name, new, new_name, flags)


class DroppedNames(
    _ManyNames,
    name="names dropped in a listing",
    fails="NAMES.many NAMES.after-change NAMES.second-client",
    expected_text="name missing in a listing",
    may="COMMIT.directory COMMIT.directory-second-client",
    at_least=60,
):
    """The listing of a directory with many names omits one name."""

    def wrong(self, found):
        middle = len(found) // 2
        return found[:middle] + found[middle + 1 :]


class DuplicatedNames(
    _ManyNames,
    name="names twice in a listing",
    fails="NAMES.many NAMES.after-change NAMES.second-client",
    expected_text="name listed twice",
    may="COMMIT.directory COMMIT.directory-second-client",
    at_least=60,
):
    """The listing of a directory with many names contains one name twice."""

    def wrong(self, found):
        return [*found, found[len(found) // 2]]


class ListedAfterDelete(
    Fault,
    name="still listed after delete",
    fails="NAMES.after-change",
    expected_text="removed or unknown name in a listing",
    may="NAMES.second-client NAMES.many STALE.names ERRORS.full FULL.mid-save",
):
    """A deleted name remains in listings for 3 s."""

    seconds = 3.0

    def unlink(self, proceed, call, parent, name):
        proceed(call, parent, name)
        self.remember((parent.id, name))

    def list(self, proceed, call, handle):
        found = proceed(call, handle)
        names = {name for name, _, _ in found}
        for number, name in list(self.remembered):
            if number == handle.node.id and name not in names and self.recall((number, name)):
                self.hit()
                found.append((name, 1, 0o100000))
        return found


class NotListedAfterCreate(
    Fault,
    name="not listed after create",
    fails="NAMES.after-change NAMES.many",
    expected_text="name missing in a listing",
    # Checks that list a directory to compare or remove it also miss the name.
    may="NAMES.second-client COMMIT.directory COMMIT.directory-second-client CAPABILITIES.names DURABLE.power-cut "
    "DURABLE.rank-killed ERRORS.full FULL.mid-save COMMIT-FULL.each-phase LIVE.calls STALE.names",
):
    """For 3 s a new name is missing in listings, but can be opened."""

    seconds = 3.0

    def create(self, proceed, call, parent, name, flags, mode):
        made = proceed(call, parent, name, flags, mode)
        self.remember((parent.id, name))
        return made

    def list(self, proceed, call, handle):
        found = proceed(call, handle)
        seen = [entry for entry in found if not self.recall((handle.node.id, entry[0]))]
        if len(seen) < len(found):
            self.hit()
        return seen


class _HiddenFromOtherProcesses(Fault):
    """Base class: for ``seconds``, only the process that created a name sees the name.

    In a race, a process on a busy machine may start late. With the default of 2 s, even such a process does not see the
    name.
    """

    seconds = 2.0

    def hide(self, call, parent, name):
        self.remember((parent.id, name), _process(call))

    def lookup(self, proceed, call, parent, name):
        maker = self.recall((parent.id, name))
        if maker and maker != _process(call):
            self.hit()
            raise FileNotFoundError(errno.ENOENT, "not yet")
        return proceed(call, parent, name)


class CreateIsNotExclusive(
    _HiddenFromOtherProcesses,
    name="O_EXCL is not exclusive",
    fails="EXCLUSIVE.create EXCLUSIVE.create-second-client",
    expected_text="several winners",
    path="EXCLUSIVE.*",
):
    """For 2 s other processes do not see a new file, and can create it again with O_EXCL."""

    def create(self, proceed, call, parent, name, flags, mode):
        try:
            made = proceed(call, parent, name, flags, mode)
        except FileExistsError:
            self.hit()
            return proceed(call, parent, name, flags & ~os.O_EXCL, mode)
        self.hide(call, parent, name)
        return made


class MkdirIsNotExclusive(
    _HiddenFromOtherProcesses,
    name="mkdir is not exclusive",
    fails="MKDIR.race MKDIR.race-second-client",
    expected_text="mkdir with several winners",
    path="MKDIR.*",
):
    """For 2 s other processes do not see a new directory, and can create it again."""

    def mkdir(self, proceed, call, parent, name, mode):
        try:
            made = proceed(call, parent, name, mode)
        except FileExistsError:
            self.hit()
            return self.fs.lookup(call, parent, name)
        self.hide(call, parent, name)
        return made


class MkdirIsNotVisible(
    _HiddenFromOtherProcesses,
    name="new directory is not visible",
    fails="MKDIR.race MKDIR.race-second-client",
    expected_text="directory that was just made cannot be used",
    path="MKDIR.*",
):
    """For 2 s other processes do not see a new directory."""

    def mkdir(self, proceed, call, parent, name, mode):
        made = proceed(call, parent, name, mode)
        self.hide(call, parent, name)
        return made


class StaleNames(
    Fault,
    name="stale names",
    fails="STALE.names",
    expected_text="limit 1 s",
    may="COMMIT.file-second-client COMMIT.directory-second-client VISIBLE.read-after-close UNLINK.second-client "
    "MKDIR.race-second-client POINTER.overwrite-second-client",
):
    """For 2.5 s after it looked up a name, the second client gets the old file of this name."""

    client = SECOND
    seconds = 2.5

    def begin(self):
        self.seen = {}

    def lookup(self, proceed, call, parent, name):
        end, node, _ = self.seen.get((parent.id, name), (0.0, None, -1))
        if time.monotonic() < end:
            self.hit()
            return self.fs.nodes.pin(node)
        found = proceed(call, parent, name)
        # The remembered file stays open, so that it can be read after its deletion.
        held = found, self.fs.nodes.open(found, os.O_PATH | os.O_NOFOLLOW)
        with self.lock:
            self._drop(self.seen.pop((parent.id, name), None))
            self.seen[parent.id, name] = (time.monotonic() + self.seconds, *held)
        self.fs.nodes.pin(found)
        return found

    def _drop(self, seen):
        if seen:
            self.fs.nodes.unpin(seen[1])
            os.close(seen[2])

    def release(self):
        if self.over.is_set():
            with self.lock:
                while self.seen:
                    self._drop(self.seen.popitem()[1])


class StaleAbsence(
    Fault,
    name="stale negative names",
    fails="STALE.negative-names",
    expected_text="s",
    may="MKDIR.race-second-client EXCLUSIVE.create-second-client COMMIT.directory-second-client STALE.names",
):
    """If the second client looks up a missing name, the name stays missing for this client for 2.5 s."""

    client = SECOND
    seconds = 2.5

    def lookup(self, proceed, call, parent, name):
        if self.recall((parent.id, name)):
            self.hit()
            raise FileNotFoundError(errno.ENOENT, "as before")
        try:
            return proceed(call, parent, name)
        except FileNotFoundError:
            self.remember((parent.id, name))
            raise

    def create(self, proceed, call, parent, name, flags, mode):
        """Create a name, and make it visible immediately. A client always sees its own names."""
        made = proceed(call, parent, name, flags, mode)
        self.remembered.pop((parent.id, name), None)
        return made


class StaleAttributes(
    Fault,
    name="stale attributes",
    fails="STALE.attributes VISIBLE.read-after-close VISIBLE.append POINTER.overwrite-second-client",
    expected_text={"VISIBLE.read-after-close": "stale size", "POINTER.overwrite-second-client": "longer text is cut"},
    may="SPARSE.disjoint-writers-second-client UNLINK.second-client COMMIT.file-second-client STALE.names",
):
    """For 2.5 s after it requested the attributes of a file, the second client gets the old size and times."""

    client = SECOND
    seconds = 2.5

    def attributes(self, proceed, call, node):
        if old := self.recall(node.id):
            self.hit()
            return old
        known = proceed(call, node)
        self.remember(node.id, known)
        return known


class StaleListing(
    Fault,
    name="stale listing",
    fails="STALE.names",
    expected_text="limit 1 s",
    may="NAMES.second-client COMMIT.directory-second-client MKDIR.race-second-client",
):
    """For 2.5 s after it listed a directory, the second client gets the old listing."""

    client = SECOND
    seconds = 2.5

    def list(self, proceed, call, handle):
        if (old := self.recall(handle.node.id)) is not None:
            self.hit()
            return old
        found = proceed(call, handle)
        self.remember(handle.node.id, found)
        return found


class CaseInsensitive(Fault, name="names regardless of case", fails="CAPABILITIES.names", expected_text="case"):
    """Names that differ only in case refer to the same file."""

    def lookup(self, proceed, call, parent, name):
        return proceed(call, parent, self._known(parent, name))

    def create(self, proceed, call, parent, name, flags, mode):
        return proceed(call, parent, self._known(parent, name), flags, mode)

    def mkdir(self, proceed, call, parent, name, mode):
        return proceed(call, parent, self._known(parent, name), mode)

    def unlink(self, proceed, call, parent, name):
        return proceed(call, parent, self._known(parent, name))

    def rmdir(self, proceed, call, parent, name):
        return proceed(call, parent, self._known(parent, name))

    def rename(self, proceed, call, old, old_name, new, new_name, flags):
        proceed(call, old, self._known(old, old_name), new, self._known(new, new_name), flags)

    def _known(self, parent, name):
        fd = self.fs.nodes.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = [os.fsencode(one) for one in os.listdir(fd)]
        finally:
            os.close(fd)
        same = [one for one in names if one.lower() == name.lower()]
        if not same or name in same:
            return name
        self.hit()
        return same[0]


class ShortNames(Fault, name="names of limited length", fails="CAPABILITIES.names", expected_text="name"):
    """Names of more than 64 bytes are refused with ENAMETOOLONG."""

    length = 64

    def lookup(self, proceed, call, parent, name):
        return proceed(call, parent, self._fitting(name))

    def create(self, proceed, call, parent, name, flags, mode):
        return proceed(call, parent, self._fitting(name), flags, mode)

    def mkdir(self, proceed, call, parent, name, mode):
        return proceed(call, parent, self._fitting(name), mode)

    def rename(self, proceed, call, old, old_name, new, new_name, flags):
        proceed(call, old, old_name, new, self._fitting(new_name), flags)

    def _fitting(self, name):
        if len(name) > self.length:
            self.hit()
            raise OSError(errno.ENAMETOOLONG, "the name is too long")
        return name


def _process(call):
    """Return (client, process) of a call.

    A call contains only the id of a thread. The id of its process is read from /proc.
    """
    try:
        with open(f"/proc/{call.pid}/status") as lines:
            return call.client, next(line for line in lines if line.startswith("Tgid:"))
    except OSError:
        return call.client, call.pid
