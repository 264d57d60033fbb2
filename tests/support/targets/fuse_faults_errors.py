"""Faults in error handling: calls that fail, and calls that hide a failure."""

from __future__ import annotations

import errno
import fcntl
import os

from tests.support.targets.fuse_faults import Fault, is_file

_OF_ERRORS = {"fails": "ERRORS.acknowledged", "may": "ERRORS.full", "path": "ERRORS.*"}


class _Refuses(Fault):
    """Base class: operations fail with an error."""

    error = errno.EIO

    def refuse(self, *_arguments, **_named):
        self.hit()
        raise OSError(self.error, os.strerror(self.error))


class FailingWrite(_Refuses, name="EIO in write", expected_text="EIO in write", **_OF_ERRORS):
    """A write beyond an offset fails with EIO. The offset is 0 by default."""

    after = 0

    def write(self, proceed, call, handle, offset, data):
        if offset + len(data) > self.after:
            self.refuse()
        return proceed(call, handle, offset, data)


class FailingUnlink(_Refuses, name="EIO in unlink"):
    """The first removal of a file fails with EIO. A parameter sets how many removals fail."""

    times = 1

    def begin(self):
        self.left = self.times

    def unlink(self, proceed, call, parent, name):
        with self.lock:
            self.left -= 1
            is_refused = self.left >= 0
        if is_refused:
            self.refuse()
        return proceed(call, parent, name)


class FailingFsync(_Refuses, name="EIO in fsync", expected_text="EIO in fsync", **_OF_ERRORS):
    """fsync of a file fails with EIO. write and close succeed."""

    fsync = _Refuses.refuse


class FailingClose(_Refuses, name="EIO in close", expected_text="EIO in close", **_OF_ERRORS):
    """close of a file that was written fails with EIO, as NFS does."""

    def begin(self):
        self.written: set[int] = set()

    def write(self, proceed, call, handle, offset, data):
        self.written.add(id(handle))
        handle.closing.append(lambda: self.written.discard(id(handle)))
        return proceed(call, handle, offset, data)

    def flush(self, proceed, call, handle):
        if id(handle) in self.written:
            self.refuse()
        return proceed(call, handle)


class FailingRead(_Refuses, name="EIO in read", expected_text="Input/output error", **_OF_ERRORS):
    """A read beyond an offset fails with EIO. The offset is 0 by default."""

    after = 0

    def read(self, proceed, call, handle, offset, size):
        if offset + size > self.after:
            self.refuse()
        return proceed(call, handle, offset, size)


class _LimitedSpace(_Refuses):
    """Base class: after the fault is enabled, the file system accepts only ``room`` more bytes."""

    room = 0

    def begin(self):
        self.left = self.room

    def takes(self, data):
        """Return how many bytes of ``data`` still fit, and reduce the free space by this number."""
        with self.lock:
            some = max(min(len(data), self.left), 0)
            self.left -= some
        return some


class _Full(_LimitedSpace):
    def write(self, proceed, call, handle, offset, data):
        some = self.takes(data)
        if not some and data:
            self.refuse()
        return proceed(call, handle, offset, data[:some])


class VolumeFull(_Full, name="ENOSPC in write", expected_text="ENOSPC in write", **_OF_ERRORS):
    """Writes fail with ENOSPC after a number of bytes, 0 by default."""

    error = errno.ENOSPC


class OverQuota(_Full, name="EDQUOT in write", expected_text="EDQUOT in write", **_OF_ERRORS):
    """Writes fail with EDQUOT after a number of bytes, 0 by default."""

    error = errno.EDQUOT


class RenameNeedsSpace(
    _Refuses,
    name="rename without space loses the name",
    fails="COMMIT-FULL.each-phase",
    expected_text="the pointer to the newest checkpoint is lost in a commit without space",
):
    """On a full volume, a rename over an existing file fails with ENOSPC and removes the existing file."""

    error = errno.ENOSPC
    minimum_free_bytes = 1 << 16

    def rename(self, proceed, call, old, old_name, new, new_name, flags):
        free = os.fstatvfs(new.fd)
        if free.f_bfree * free.f_frsize < self.minimum_free_bytes and is_file(new, new_name):
            self.fs.unlink(call, new, new_name)
            self.refuse()
        return proceed(call, old, old_name, new, new_name, flags)


class LostAnswer(_Refuses, name="the answer of rename is lost"):
    """The rename of a directory takes effect, but reports EIO. With ``torn``, its files also lose their second half."""

    torn = False

    def rename(self, proceed, call, old, old_name, new, new_name, flags):
        proceed(call, old, old_name, new, new_name, flags)
        directory = f"/proc/self/fd/{new.fd}/{os.fsdecode(new_name)}"
        if os.path.isdir(directory):
            for name in os.listdir(directory) if self.torn else ():
                path = os.path.join(directory, name)
                os.truncate(path, os.path.getsize(path) // 2)
            self.refuse()


class FullAndSilent(
    _LimitedSpace, name="ENOSPC is swallowed", expected_text="acknowledged bytes are not there", **_OF_ERRORS
):
    """On a full volume, write, fsync and close report success, but the bytes are not stored."""

    def write(self, proceed, call, handle, offset, data):
        some = self.takes(data)
        if some:
            proceed(call, handle, offset, data[:some])
        if some < len(data):
            self.hit()
        return len(data)


class LostWriteback(
    Fault, name="error of write-back is lost", expected_text="acknowledged bytes are not there", **_OF_ERRORS
):
    """write, fsync and close report success, but the bytes are not stored. Later reads return zeros."""

    def write(self, proceed, call, handle, offset, data):
        if os.fstat(handle.fd).st_size < offset + len(data):
            self.fs.truncate(call, handle.node, offset + len(data))
        self.hit()
        return len(data)


class ReadOnly(_Refuses, name="EROFS", expected_text="read-only file system", **_OF_ERRORS):
    """Every change fails with EROFS."""

    error = errno.EROFS

    create = mkdir = mknod = symlink = link = unlink = rmdir = rename = write = _Refuses.refuse
    truncate = fallocate = change = setxattr = removexattr = _Refuses.refuse

    def open(self, proceed, call, node, flags):
        if flags & (os.O_ACCMODE | os.O_TRUNC):
            self.refuse()
        return proceed(call, node, flags)


class NoDirect(_Refuses, name="no O_DIRECT", fails="DIRECT.aligned", expected_text="O_DIRECT refused"):
    """open with O_DIRECT fails with EINVAL."""

    error = errno.EINVAL

    def open(self, proceed, call, node, flags):
        if flags & os.O_DIRECT:
            self.refuse()
        return proceed(call, node, flags)

    def create(self, proceed, call, parent, name, flags, mode):
        if flags & os.O_DIRECT:
            self.refuse()
        return proceed(call, parent, name, flags, mode)


class NoMmap(
    Fault, name="no mmap", fails="MMAP.shared", expected_text="mmap refused", may="MMAP.private UNLINK.open-reader"
):
    """Shared mappings of a file fail with ENODEV. Private mappings work."""

    def open(self, proceed, call, node, flags):
        self.hit()
        handle = proceed(call, node, flags)
        handle.bypasses_cache = True
        return handle

    def create(self, proceed, call, parent, name, flags, mode):
        self.hit()
        node, handle = proceed(call, parent, name, flags, mode)
        handle.bypasses_cache = True
        return node, handle


class NoSymlinks(
    _Refuses, name="no symbolic links", fails="CAPABILITIES.links", expected_text="symbolic links refused"
):
    """Creating a symbolic link fails with EPERM."""

    error = errno.EPERM
    symlink = _Refuses.refuse


class NoHardLinks(
    _Refuses,
    name="no hard links",
    fails="CAPABILITIES.links",
    expected_text="link",
    may="COMMIT.file COMMIT.file-second-client",
):
    """Creating a hard link fails with EPERM."""

    error = errno.EPERM
    link = _Refuses.refuse


class NoXattr(_Refuses, name="no extended attributes", reported={"CAPABILITIES.extras": "no"}):
    """Extended attributes are not supported: EOPNOTSUPP."""

    error = errno.EOPNOTSUPP
    getxattr = setxattr = listxattr = removexattr = _Refuses.refuse


class CutXattr(
    Fault,
    name="extended attributes lose a byte",
    fails="CAPABILITIES.extras",
    expected_text="did not come back as it was set",
):
    """Values of extended attributes longer than 100 bytes lose their last byte."""

    def getxattr(self, proceed, call, node, name):
        value = proceed(call, node, name)
        if len(value) > 100:
            self.hit()
            value = value[:-1]
        return value


class NoFallocate(_Refuses, name="no fallocate", reported={"CAPABILITIES.extras": "no"}):
    """fallocate is not supported: EOPNOTSUPP."""

    error = errno.EOPNOTSUPP
    fallocate = _Refuses.refuse


class LockAlwaysFails(
    Fault,
    name="flock refuses a free lock",
    fails="CAPABILITIES.flock CAPABILITIES.flock-second-client",
    expected_text={"CAPABILITIES.flock": "flock refused", "CAPABILITIES.flock-second-client": "free lock refused"},
):
    """Locking a file fails with EAGAIN, although no process has the lock."""

    def flock(self, proceed, call, handle, wanted, wait):
        if wanted == fcntl.LOCK_UN:
            return proceed(call, handle, wanted, wait)
        self.hit()
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


class LockAlwaysSucceeds(
    Fault,
    name="flock locks nobody out",
    fails="CAPABILITIES.flock CAPABILITIES.flock-second-client",
    expected_text="exclusive lock given twice",
):
    """Locking a file succeeds, even if another process has the lock."""

    def flock(self, proceed, call, handle, wanted, wait):
        self.hit()
