"""Faults of bytes: flipped, torn, misplaced, stale or otherwise wrong bytes."""

from __future__ import annotations

import errno
import math
import os
import time
from pathlib import Path

from tests.support.targets.fuse_faults import SECOND, Fault
from tests.support.targets.fuse_nodes import Attributes, Handle
from tests.support.targets.fuse_volatile import pieces

_BLOCK = 4096


def _size(handle: Handle) -> int:
    return os.fstat(handle.fd).st_size


def _rotated(data: memoryview, block: int) -> bytes:
    """Return the data with the last complete block moved to the front."""
    whole = len(data) // block * block
    return bytes(data[whole - block : whole]) + bytes(data[: whole - block]) + bytes(data[whole:])


class FlippedInReads(Fault, name="flipped bit in reads", damages="flipped bits"):
    """Reads return one flipped bit in the middle of every file. The stored bytes are correct."""

    place = 0.5

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        where = int(_size(handle) * self.place) - offset
        if 0 <= where < len(data):
            data[where] ^= 1
            self.hit()
        return data


class FlippedAtRest(Fault, name="flipped bit at rest", damages="flipped bits"):
    """One stored bit in the middle of a written file is flipped when the file is closed or fsynced."""

    place = 0.5

    def begin(self):
        self.written: set[int] = set()

    def write(self, proceed, call, handle, offset, data):
        done = proceed(call, handle, offset, data)
        self.written.add(handle.node.id)
        return done

    def flush(self, proceed, call, handle):
        proceed(call, handle)
        self._flip(handle)

    def fsync(self, proceed, call, handle):
        self._flip(handle)
        proceed(call, handle)

    def _flip(self, handle):
        if handle.flags & os.O_ACCMODE == os.O_RDONLY:  # a reader's descriptor; the writer's comes later
            return
        with self.lock:
            if handle.node.id not in self.written:
                return
            self.written.remove(handle.node.id)
        where = int(_size(handle) * self.place)
        if byte := os.pread(handle.fd, 1, where):
            os.pwrite(handle.fd, bytes([byte[0] ^ 1]), where)
            self.hit()


class TornWrite(Fault, name="torn write", damages="zeros instead of data"):
    """A write reports success but stores only the first half of its bytes. The file has the right size."""

    kept = 0.5

    def write(self, proceed, call, handle, offset, data):
        some = int(len(data) * self.kept)
        if some:
            proceed(call, handle, offset, data[:some])
        if _size(handle) < offset + len(data):
            self.fs.truncate(call, handle.node, offset + len(data))
        self.hit()
        return len(data)


class MisplacedWrite(Fault, name="misplaced write", damages="misplaced bytes"):
    """A write of several blocks stores each block one block further. The last block is stored first."""

    block = _BLOCK

    def write(self, proceed, call, handle, offset, data):
        if len(data) < 2 * self.block:
            return proceed(call, handle, offset, data)
        self.hit()
        return proceed(call, handle, offset, memoryview(_rotated(data, self.block)))


class MisplacedRead(Fault, name="misplaced read", damages="misplaced bytes"):
    """A read of several blocks returns the blocks in another order. The stored bytes are correct."""

    block = _BLOCK

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        if len(data) >= 2 * self.block:
            data[:] = _rotated(data, self.block)
            self.hit()
        return data


class StaleData(
    Fault,
    name="stale data",
    fails="VISIBLE.read-after-close COMMIT.file-second-client STALE.names POINTER.overwrite-second-client",
    expected_text="bytes of an older version",
    may="UNLINK.second-client SPARSE.disjoint-writers-second-client STALE.attributes CAPABILITIES.flock-second-client",
):
    """For 2.5 s after its first read of a file, the second client reads the file's old bytes."""

    client = SECOND
    seconds = 2.5
    maximum_bytes = 16 << 20

    def begin(self):
        self.seen: dict[str, tuple[float, bytes]] = {}

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        path = self.fs.nodes.path_of(handle.node)
        when, old = self.seen.get(path, (-math.inf, b""))
        if time.monotonic() - when > self.seconds:
            self.seen[path] = (time.monotonic(), os.pread(handle.fd, self.maximum_bytes, 0))
        elif old[offset : offset + len(data)] != data:
            piece = old[offset : offset + len(data)]
            data[: len(piece)] = piece
            self.hit()
        return data


class LateData(
    Fault,
    name="late data",
    fails="VISIBLE.read-after-close VISIBLE.append COMMIT.file-second-client STALE.names STALE.attributes "
    "POINTER.overwrite-second-client",
    expected_text="stale size at the first open",
    may="SPARSE.disjoint-writers-second-client UNLINK.second-client PUBLISH.marker PUBLISH.directory PUBLISH.pointer",
):
    """For 3 s after a write by the first client, the file is empty for the second client."""

    seconds = 3.0

    def write(self, proceed, call, handle, offset, data):
        if call.client != SECOND:
            self.remember(handle.node.id)
        return proceed(call, handle, offset, data)

    def attributes(self, proceed, call, node):
        known: Attributes = proceed(call, node)
        if not self._hides(call, node.id):
            return known
        self.hit()
        return known._replace(size=0)

    def read(self, proceed, call, handle, offset, size):
        return memoryview(b"") if self._hides(call, handle.node.id) else proceed(call, handle, offset, size)

    def _hides(self, call, number):
        return call.client == SECOND and self.recall(number)


class DataAfterName(
    Fault,
    name="data arrive after their name",
    fails="PUBLISH.marker PUBLISH.directory PUBLISH.pointer",
    expected_text={
        "PUBLISH.directory": "marker visible before its data",
        "PUBLISH.marker": "marker without its content",
    },
    path="PUBLISH.*",
):
    """For 3 s after a write, the second client reads zeros beyond the first 64 bytes of the file."""

    client = SECOND
    seconds = 3.0
    # The first bytes are correct, so small files that only contain a name are complete.
    whole_bytes = 64

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        first = max(self.whole_bytes - offset, 0)
        if len(data) > first and time.time() - os.fstat(handle.fd).st_mtime < self.seconds:
            self.hit()
            data[first:] = bytes(len(data) - first)
        return data


class AppendsVisibleLate(
    Fault,
    name="appended bytes come late",
    fails="VISIBLE.append STALE.attributes",
    expected_text="appended bytes are not seen",
):
    """For 2.5 s, the second client does not see bytes that the first client has appended (O_APPEND)."""

    seconds = 2.5

    def write(self, proceed, call, handle, offset, data):
        if handle.flags & os.O_APPEND and call.client != SECOND and offset:
            self.remember(handle.node.id, self.recall(handle.node.id) or offset)
        return proceed(call, handle, offset, data)

    def attributes(self, proceed, call, node):
        known: Attributes = proceed(call, node)
        if (end := self._end(call, node.id, known.size)) == known.size:
            return known
        self.hit()
        return known._replace(size=end)

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        return data[: max(self._end(call, handle.node.id, offset + len(data)) - offset, 0)]

    def _end(self, call, number, size):
        return min(self.recall(number) or size, size) if call.client == SECOND else size


class AppendsOverlap(
    Fault,
    name="appended bytes overwrite those of the other client",
    fails="VISIBLE.append",
    expected_text="an appended record is lost or torn",
):
    """The second client's appends (O_APPEND) overwrite newer records of the first client."""

    client = SECOND

    def begin(self):
        self.ends: dict[int, int] = {}

    def write(self, proceed, call, handle, offset, data):
        if not handle.flags & os.O_APPEND:
            return proceed(call, handle, offset, data)
        end = self.ends.get(handle.node.id, offset)
        self.hits += end != offset
        done = proceed(call, handle, end, data)
        self.ends[handle.node.id] = end + done
        return done


class _FreshIsUnknown(Fault):
    """Base class: some functions ignore data that were written to a file after its last fsync."""

    def begin(self):
        self.fresh: set[int] = set()

    def write(self, proceed, call, handle, offset, data):
        self.fresh.add(handle.node.id)
        return proceed(call, handle, offset, data)

    def fsync(self, proceed, call, handle):
        proceed(call, handle)
        self.fresh.discard(handle.node.id)


class FreshIsAHole(
    _FreshIsUnknown,
    name="new data are reported as a hole",
    fails="CLONE-FRESH.copy",
    expected_text="copied by SEEK_DATA and SEEK_HOLE",
):
    """SEEK_DATA and SEEK_HOLE report a file with unsynced writes as one hole."""

    def seek(self, proceed, call, handle, offset, whence):
        if handle.node.id not in self.fresh or whence not in (os.SEEK_DATA, os.SEEK_HOLE):
            return proceed(call, handle, offset, whence)
        self.hit()
        if whence == os.SEEK_DATA or offset >= _size(handle):
            raise OSError(errno.ENXIO, "a hole to the end")
        return offset


class FreshIsCopiedAsZeros(
    _FreshIsUnknown,
    name="new data are copied as zeros",
    fails="CLONE-FRESH.copy",
    expected_text="copied by copy_file_range",
):
    """copy_file_range copies zeros from a file with unsynced writes."""

    def copy(self, proceed, call, source, offset, target, target_offset, length):
        done = proceed(call, source, offset, target, target_offset, length)
        if source.node.id in self.fresh:
            self.hit()
            os.pwrite(target.fd, bytes(done), target_offset)
        return done


class GarbageForAMoment(
    Fault,
    name="overwrite in place is not atomic",
    fails="POINTER.overwrite POINTER.overwrite-second-client",
    expected_text="b'\\xa5",
    may="content",
):
    """For 5 ms after a write to a file, reads return bytes that were never written."""

    seconds = 0.005

    def write(self, proceed, call, handle, offset, data):
        done = proceed(call, handle, offset, data)
        self.remember(handle.node.id)
        return done

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        if data and self.recall(handle.node.id):
            data[:] = b"\xa5" * len(data)
            self.hit()
        return data


class HolesNotZero(
    Fault,
    name="holes are not zero",
    fails="SPARSE.tail-first CLONE-FRESH.copy LARGE.offsets",
    expected_text="bytes in a hole",
    # A file that is truncated and extended again has a hole for a moment.
    may="POINTER.overwrite POINTER.overwrite-second-client CAPABILITIES.extras",
):
    """Reads of holes (ranges that were never written) return other bytes than zeros."""

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        for low, high, is_data in pieces(handle.fd, offset, offset + len(data)):
            if not is_data:
                data[low - offset : high - offset] = b"\xa5" * (high - low)
                self.hit()
        return data


class LargeOffsetWraps(Fault, name="large offset wraps", fails="LARGE.offsets", expected_text="large-4-GiB"):
    """Bytes at offsets from 4 GiB on are stored 4 GiB earlier. The boundary is a parameter."""

    at = 1 << 32

    def write(self, proceed, call, handle, offset, data):
        if offset >= self.at:
            self.hit()
        return proceed(call, handle, offset % self.at, data)


class FileSizeLimited(Fault, name="file size limited", fails="LARGE.offsets", expected_text="file size limited"):
    """Writes at offsets from 2 GiB on fail with EFBIG. The boundary is a parameter."""

    at = 1 << 31

    def write(self, proceed, call, handle, offset, data):
        if offset + len(data) > self.at:
            self._refuse()
        return proceed(call, handle, offset, data)

    def truncate(self, proceed, call, node, size):
        if size > self.at:
            self._refuse()
        return proceed(call, node, size)

    def _refuse(self):
        self.hit()
        raise OSError(errno.EFBIG, "the file is too large")


class DirectIsIncoherent(
    Fault,
    name="O_DIRECT is not coherent",
    fails="DIRECT.coherent",
    expected_text="zeros instead of data",
    # These checks read with O_DIRECT to bypass the caches.
    may="COMMIT-FULL.each-phase DURABLE.rank-killed ERRORS.acknowledged ERRORS.full FULL.mid-save "
    "DURABLE.power-cut DIRECT.aligned",
):
    """Reads with O_DIRECT return zeros for bytes written through the page cache."""

    def begin(self):
        self.buffered: dict[int, list[tuple[int, int]]] = {}

    def write(self, proceed, call, handle, offset, data):
        if not handle.flags & os.O_DIRECT:
            self.buffered.setdefault(handle.node.id, []).append((offset, offset + len(data)))
        return proceed(call, handle, offset, data)

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        if handle.flags & os.O_DIRECT:
            for begin, end in self.buffered.get(handle.node.id, ()):
                low, high = max(begin - offset, 0), min(end - offset, len(data))
                if low < high:
                    data[low:high] = bytes(high - low)
                    self.hit()
        return data


class _UnlinkedWhileOpen(Fault):
    def unlink(self, proceed, call, parent, name):
        node = self.fs.nodes.find(parent, name)
        try:
            proceed(call, parent, name)
        finally:
            self.fs.nodes.unpin(node)
        for session in self.sessions:
            # Pages in the kernel's cache would hide the fault.
            call.afterwards.append(lambda session=session: session.invalidate_node(node.id))

    def _is_gone(self, handle):
        return not os.fstat(handle.fd).st_nlink - handle.node.kept_links


class UnlinkedIsStale(
    _UnlinkedWhileOpen,
    name="unlink takes the file from its readers",
    fails="UNLINK.open-reader",
    expected_text="removed file fails",
    # A rename over a file unlinks it too, and processes that have it open get an error.
    may="COMMIT.file COMMIT.file-second-client",
):
    """A process that has a file open gets ESTALE in reads after the file was unlinked."""

    def read(self, proceed, call, handle, offset, size):
        if self._is_gone(handle):
            self.hit()
            raise OSError(errno.ESTALE, "the file was unlinked")
        return proceed(call, handle, offset, size)


class UnlinkedIsGarbage(
    _UnlinkedWhileOpen,
    name="unlink gives its readers wrong bytes",
    fails="UNLINK.open-reader UNLINK.second-client",
    expected_text="wrong bytes",
    # A rename over a file unlinks it too.
    may="COMMIT.file COMMIT.file-second-client POINTER.overwrite POINTER.overwrite-second-client",
):
    """A process that has a file open reads wrong bytes after the file was unlinked."""

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        if data and self._is_gone(handle):
            data[:] = b"\xa5" * len(data)
            self.hit()
        return data


class MappedReadFails(
    Fault,
    name="reading through mmap gives SIGBUS",
    fails="MMAP.private MMAP.shared",
    expected_text="SIGBUS",
    may="UNLINK.open-reader",
):
    """Reading a mapped file fails with SIGBUS. read(2) of the same file works."""

    def read(self, proceed, call, handle, offset, size):
        if _faults_a_page(call.pid):
            self.hit()
            raise OSError(errno.EIO, "no page")
        return proceed(call, handle, offset, size)


def _faults_a_page(pid: int) -> bool:
    """Whether the task waits for a page of a mapped file, and not for a system call."""
    for _ in range(200):
        try:
            words = Path(f"/proc/{pid}/syscall").read_text().split()
        except OSError:
            return False
        if words != ["running"]:
            return words[0] == "-1"
        time.sleep(0.0005)
    return False
