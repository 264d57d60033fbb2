"""Faults that are errors, or the lack of them: what is refused, and what should have been."""

from __future__ import annotations

import errno
import fcntl
import os

from tests.support.targets.fuse_faults import Fault, is_file


class _Refuses(Fault):
    """Refuse operations with an error."""

    error = errno.EIO

    def refuse(self, *_arguments, **_named):
        self.hit()
        raise OSError(self.error, os.strerror(self.error))


class FailingWrite(
    _Refuses,
    name="EIO in write",
    fails="ERRORS.acknowledged",
    says={"ERRORS.acknowledged": "EIO in write"},
    may="ERRORS.full",
    path="ERRORS.*",
):
    """Writing fails with EIO, beyond a number of bytes if one is given."""

    after = 0

    def write(self, proceed, call, handle, offset, data):
        if offset + len(data) > self.after:
            self.refuse()
        return proceed(call, handle, offset, data)


class FailingFsync(
    _Refuses,
    name="EIO in fsync",
    fails="ERRORS.acknowledged",
    says={"ERRORS.acknowledged": "EIO in fsync"},
    may="ERRORS.full",
    path="ERRORS.*",
):
    """fsync of a file fails with EIO; write and close do not."""

    fsync = _Refuses.refuse


class FailingClose(
    _Refuses,
    name="EIO in close",
    fails="ERRORS.acknowledged",
    says={"ERRORS.acknowledged": "EIO in close"},
    may="ERRORS.full",
    path="ERRORS.*",
):
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


class FailingRead(
    _Refuses,
    name="EIO in read",
    fails="ERRORS.acknowledged",
    says={"ERRORS.acknowledged": "Input/output error"},
    may="ERRORS.full",
    path="ERRORS.*",
):
    """Reading fails with EIO, beyond a number of bytes if one is given."""

    after = 0

    def read(self, proceed, call, handle, offset, size):
        if offset + size > self.after:
            self.refuse()
        return proceed(call, handle, offset, size)


class _Room(_Refuses):
    """Room for so many bytes that are written from now on."""

    room = 0

    def begin(self):
        self.left = self.room

    def takes(self, data):
        """Return how many bytes still fit, and count them."""
        with self.lock:
            some = max(min(len(data), self.left), 0)
            self.left -= some
        return some


class _Full(_Room):
    def write(self, proceed, call, handle, offset, data):
        some = self.takes(data)
        if not some and data:
            self.refuse()
        return proceed(call, handle, offset, data[:some])


class VolumeFull(
    _Full,
    name="ENOSPC in write",
    fails="ERRORS.acknowledged",
    says={"ERRORS.acknowledged": "ENOSPC in write"},
    may="ERRORS.full",
    path="ERRORS.*",
):
    """Writing fails with ENOSPC once as many bytes were written as there is room for, none by default."""

    error = errno.ENOSPC


class OverQuota(
    _Full,
    name="EDQUOT in write",
    fails="ERRORS.acknowledged",
    says={"ERRORS.acknowledged": "EDQUOT in write"},
    may="ERRORS.full",
    path="ERRORS.*",
):
    """Writing fails with EDQUOT once as many bytes were written as there is room for, none by default."""

    error = errno.EDQUOT


class RenameNeedsSpace(
    _Refuses,
    name="rename without space loses the name",
    fails="COMMIT-FULL.each-phase",
    says={"COMMIT-FULL.each-phase": "the pointer to the newest checkpoint is lost in a commit without space"},
):
    """A file is renamed over another on a full volume: ENOSPC, and the other is gone."""

    error = errno.ENOSPC
    minimum_free_bytes = 1 << 16

    def rename(self, proceed, call, old, old_name, new, new_name, flags):
        free = os.fstatvfs(new.fd)
        if free.f_bfree * free.f_frsize < self.minimum_free_bytes and is_file(new, new_name):
            self.fs.unlink(call, new, new_name)
            self.refuse()
        return proceed(call, old, old_name, new, new_name, flags)


class FullAndSilent(
    _Room,
    name="ENOSPC is swallowed",
    fails="ERRORS.acknowledged",
    says={"ERRORS.acknowledged": "acknowledged bytes are not there"},
    may="ERRORS.full",
    path="ERRORS.*",
):
    """Once there is no more room, write, fsync and close say success and the bytes are not there: the file is short."""

    def write(self, proceed, call, handle, offset, data):
        some = self.takes(data)
        if some:
            proceed(call, handle, offset, data[:some])
        if some < len(data):
            self.hit()
        return len(data)


class LostWriteback(
    Fault,
    name="error of write-back is lost",
    fails="ERRORS.acknowledged",
    says={"ERRORS.acknowledged": "acknowledged bytes are not there"},
    may="ERRORS.full",
    path="ERRORS.*",
):
    """What was written never gets to storage, and neither write nor fsync nor close says so: zeros are read later."""

    def write(self, proceed, call, handle, offset, data):
        if os.fstat(handle.fd).st_size < offset + len(data):
            self.fs.truncate(call, handle.node, offset + len(data))
        self.hit()
        return len(data)


class ReadOnly(
    _Refuses,
    name="EROFS",
    fails="ERRORS.acknowledged",
    says={"ERRORS.acknowledged": "read-only file system"},
    may="ERRORS.full",
    path="ERRORS.*",
):
    """Nothing can be changed: EROFS."""

    error = errno.EROFS

    create = mkdir = mknod = symlink = link = unlink = rmdir = rename = write = _Refuses.refuse
    truncate = fallocate = change = setxattr = removexattr = _Refuses.refuse

    def open(self, proceed, call, node, flags):
        if flags & (os.O_ACCMODE | os.O_TRUNC):
            self.refuse()
        return proceed(call, node, flags)


class NoDirect(_Refuses, name="no O_DIRECT", fails="DIRECT.aligned", says={"DIRECT.aligned": "O_DIRECT refused"}):
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
    Fault,
    name="no mmap",
    fails="MMAP.shared",
    says={"MMAP.shared": "mmap refused"},
    may="MMAP.private UNLINK.open-reader",
):
    """A shared mapping of a file fails with ENODEV; private ones the kernel grants on every file."""

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
    _Refuses,
    name="no symbolic links",
    fails="CAPABILITIES.links",
    says={"CAPABILITIES.links": "symbolic links refused"},
):
    """A symbolic link cannot be made: EPERM."""

    error = errno.EPERM
    symlink = _Refuses.refuse


class NoHardLinks(
    _Refuses,
    name="no hard links",
    fails="CAPABILITIES.links",
    says={"CAPABILITIES.links": "link"},
    may="COMMIT.file COMMIT.file-second-client",
):
    """A hard link cannot be made: EPERM."""

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
    says={"CAPABILITIES.extras": "did not come back as it was set"},
):
    """Values of extended attributes over 100 bytes come back without their last byte."""

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


class NobodyLocks(
    Fault,
    name="flock refuses a free lock",
    fails="CAPABILITIES.flock CAPABILITIES.flock-second-client",
    says={"CAPABILITIES.flock": "flock refused", "CAPABILITIES.flock-second-client": "free lock refused"},
):
    """Nobody gets the lock of a file, which nobody else has: EAGAIN."""

    def flock(self, proceed, call, handle, wanted, wait):
        if wanted == fcntl.LOCK_UN:
            return proceed(call, handle, wanted, wait)
        self.hit()
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


class EverybodyLocks(
    Fault,
    name="flock locks nobody out",
    fails="CAPABILITIES.flock CAPABILITIES.flock-second-client",
    says={"CAPABILITIES.flock": "exclusive lock given twice"},
):
    """Everybody gets the lock of a file that he asks for."""

    def flock(self, proceed, call, handle, wanted, wait):
        self.hit()
