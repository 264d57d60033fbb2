"""The table of file systems: how each is mounted, which checks it fails and why, reproductions, and remedies."""

from __future__ import annotations

from tests.support.file_systems.ceph import cephfs
from tests.support.file_systems.of_one_host import (
    bindfs,
    gocryptfs,
    mergerfs,
    of_kernel,
    on_device,
    over_ext4,
    overlay,
    tmpfs,
    zfs,
)
from tests.support.file_systems.of_servers import SFTP_SERVER, glusterfs, moosefs, rclone, sshfs
from tests.support.file_systems.row import FileSystem

_E2FS = ("e2fsprogs",)
_BY_PATH = (
    "It finds a file by its path, which the rename has just removed: open fails with ENOENT although the name always "
    "exists. A reader of the `latest` pointer fails, or starts without a checkpoint."
)
_BY_PATH_AND_LENGTH = (
    "It finds a file by its path and keeps its length for 20 s: while it is replaced, open returns ENOENT, or a reader "
    "gets new bytes cut off at the old length: bytes of no version."
)
_REPLACED = {"COMMIT.file": _BY_PATH}
_SHOWS_REPLACED = {"COMMIT.file": "replaced"}
_FULL = "A full server returns EIO, because sftp lacks ENOSPC: a job takes it for a broken disk."
_EMPTY = "A directory that is being renamed is listed empty: it is opened by one path and listed by another."
_FOUND = (
    "It looks a name up and opens what it found: a file that a rename has just replaced is gone, and is refused with "
    "ENOENT, or ESTALE again and again."
)
_OLD_LENGTH = (
    "For 1 s, a client that sees the marker may read an older version of a file, or one cut off at its old length."
)
_NOBODY = "Of hundreds of races for a name one has no winner: both clients get EEXIST, and it exists."
_UNSEEN = {
    "COLD": "The kernel caches no pages of its files, so it cannot count them; the client's cache is not observable."
}

FILE_SYSTEMS = (
    FileSystem(
        name="ext4",
        how="loop device",
        packages=_E2FS,
        programs=("mkfs.ext4",),
        start=of_kernel("ext4"),
        cures="fuse2fs",
    ),
    FileSystem(name="XFS", how="loop device", packages=("xfsprogs",), programs=("mkfs.xfs",), start=of_kernel("xfs")),
    FileSystem(
        name="btrfs",
        how="loop device, compress=zstd",
        packages=("btrfs-progs",),
        programs=("mkfs.btrfs",),
        start=of_kernel("btrfs", "compress=zstd"),
    ),
    FileSystem(name="overlay", how="layers on ext4", packages=_E2FS, programs=("mkfs.ext4",), start=overlay),
    FileSystem(
        name="tmpfs",
        how="memory",
        packages=(),
        programs=(),
        start=tmpfs,
        fails={"COLD": "It is memory: reads do not come from storage."},
    ),
    FileSystem(
        name="exFAT",
        how="exfat-fuse on a loop device",
        packages=("exfat-fuse", "exfatprogs"),
        programs=("mount.exfat-fuse", "mkfs.exfat"),
        start=on_device("exfat", "mount.exfat-fuse", "-d"),
        fails=_REPLACED,
        shows=_SHOWS_REPLACED,
        is_served=True,
    ),
    FileSystem(
        name="NTFS",
        how="ntfs-3g on a loop device",
        packages=("ntfs-3g",),
        programs=("ntfs-3g", "mkntfs"),
        start=on_device("ntfs", "ntfs-3g", options="no_detach"),
        fails=_REPLACED,
        shows=_SHOWS_REPLACED,
        is_served=True,
    ),
    FileSystem(
        name="fuse2fs",
        how="ext4 by FUSE on a loop device",
        packages=("fuse2fs", "e2fsprogs"),
        programs=("fuse2fs", "mkfs.ext4"),
        start=on_device("ext4", "fuse2fs", "-f"),
        fails=_REPLACED,
        may_fail={"LIVE.calls": "A directory whose files were all removed may be refused its removal, with ENOTEMPTY."},
        shows=_SHOWS_REPLACED,
        leaves="It may answer EIO when the directory of the checks is removed: the run names the remaining files.",
        is_served=True,
    ),
    FileSystem(
        name="ZFS",
        how="zfs-fuse, pools on files",
        packages=("zfs-fuse",),
        programs=("zfs-fuse", "zpool"),
        start=zfs,
        fails=_REPLACED,
        shows=_SHOWS_REPLACED,
        is_served=True,
    ),
    FileSystem(
        name="bindfs",
        how="over ext4, as mount -t fuse.bindfs does",
        packages=("bindfs",),
        programs=("bindfs",),
        start=over_ext4(bindfs("-o", "subtype=bindfs")),
        fails=_REPLACED,
        shows=_SHOWS_REPLACED,
        undecided=_UNSEEN,
        is_served=True,
    ),
    FileSystem(
        name="gocryptfs",
        how="over ext4",
        packages=("gocryptfs",),
        programs=("gocryptfs",),
        start=over_ext4(gocryptfs()),
        fails={
            "COMMIT.file": "A reader gets ENOENT, the length of another version, or bytes of two, while it is replaced."
        },
        may_fail={
            "COMMIT.directory": "A directory that is being renamed is listed without some of its files.",
            "POINTER.overwrite": "A reader may get EIO while it is overwritten: seen in two of ten runs.",
        },
        shows={"COMMIT.file": "replaced", "COMMIT.directory": "renamed_directory"},
        undecided=_UNSEEN,
        is_served=True,
    ),
    FileSystem(
        name="mergerfs",
        how="two branches on ext4, minfreespace=1M",
        packages=("mergerfs",),
        programs=("mergerfs",),
        start=over_ext4(mergerfs("minfreespace=1M")),
        fails={"COMMIT.directory": "A directory that is being renamed is listed empty, or without some of its files."},
        shows={"COMMIT.directory": "renamed_directory"},
        undecided=_UNSEEN,
        is_served=True,
    ),
    FileSystem(
        name="sshfs",
        how="OpenSSH's sftp server over TCP on loopback, two mounts",
        packages=("sshfs", "openssh-sftp-server"),
        programs=("sshfs", SFTP_SERVER),
        start=sshfs(),
        fails={
            "COMMIT.file": _BY_PATH_AND_LENGTH,
            "COMMIT.file-second-client": _BY_PATH_AND_LENGTH,
            "VISIBLE.read-after-close": "A file that the other client has read within 20 s is read cut off at its old "
            "length after it grew and was closed: from 1 s on, when its kernel asks for the length anew.",
            "POINTER.overwrite-second-client": "A pointer that the other client has read within 20 s is read cut off "
            "at its old length after a longer text was written: global_step2 for global_step25.",
            "NAMES.second-client": "A client keeps listings for 20 s.",
            "ERRORS.full": _FULL,
            "FULL.mid-save": _FULL,
            "COMMIT-FULL.each-phase": _FULL,
        },
        may_fail={
            "STALE.attributes": "A client keeps sizes and times for 20 s.",
            "STALE.names": "A client keeps names for 20 s.",
            "EXCLUSIVE.create-second-client": "The loser gets EPERM, not EEXIST: sftp has one error for both.",
            "COMMIT.directory": _EMPTY,
            "COMMIT.directory-second-client": _EMPTY,
            "VISIBLE.append": "Bytes appended 1.2 s after the other client read the file are not seen there.",
            "NAMES.many": "Its server is asked several times for each new file: 10,000 take about 10 s, the limit.",
        },
        shows={
            "COMMIT.file": "replaced",
            "COMMIT.file-second-client": "replaced",
            "VISIBLE.read-after-close": "lengthened",
            "VISIBLE.append": "lengthened",
            "POINTER.overwrite-second-client": "lengthened",
            "STALE.attributes": "attributes",
            "STALE.names": "removed_names",
            "EXCLUSIVE.create-second-client": "created_once",
            "NAMES.second-client": "listed",
            "ERRORS.full": "filled",
            "FULL.mid-save": "filled",
            "COMMIT-FULL.each-phase": "filled",
        },
        undecided=_UNSEEN,
        is_served=True,
    ),
    FileSystem(
        name="sshfs without caches",
        how="two mounts with dir_cache=no,attr_timeout=0,entry_timeout=0",
        packages=("sshfs", "openssh-sftp-server"),
        programs=("sshfs", SFTP_SERVER),
        start=sshfs("dir_cache=no,attr_timeout=0,entry_timeout=0"),
        fails={"ERRORS.full": _FULL, "FULL.mid-save": _FULL, "COMMIT-FULL.each-phase": _FULL},
        may_fail={
            "COMMIT.file": _BY_PATH,
            "COMMIT.file-second-client": _BY_PATH,
            "COMMIT.directory": _EMPTY,
            "COMMIT.directory-second-client": _EMPTY,
            "EXCLUSIVE.create-second-client": "The loser gets EPERM, not EEXIST: sftp has one error for both.",
        },
        shows={
            "ERRORS.full": "filled",
            "FULL.mid-save": "filled",
            "COMMIT-FULL.each-phase": "filled",
            "COMMIT.directory": "renamed_directory",
            "COMMIT.directory-second-client": "renamed_directory",
            "EXCLUSIVE.create-second-client": "created_once",
        },
        undecided=_UNSEEN,
        cures="sshfs",
        cured_ways=("lengthened", "attributes", "removed_names", "listed"),
    ),
    FileSystem(
        name="rclone",
        how="rclone mount of a WebDAV server, cache mode full",
        packages=("rclone",),
        programs=("rclone",),
        start=rclone("full"),
        fails={
            "LOAD": "No whole load: see INTEGRITY.",
            "INTEGRITY": "After a directory was renamed, files that were written and synced in it are empty.",
            "COMMIT.file": "It uploads a file some time after it was closed, by its name of that moment: a "
            "file that is renamed meanwhile is empty or cut short, bytes of no version.",
            "DURABLE.rank-killed": "Files that were written, synced and renamed with their directory are cut short.",
        },
        may_fail={"UNLINK.open-reader": "A mapping of a file that was removed ends in SIGBUS."},
        shows={"INTEGRITY": "committed", "COMMIT.file": "replaced", "DURABLE.rank-killed": "committed"},
        undecided=_UNSEEN,
        gates="gateway",
        leaves="It may answer EIO when the directory of the checks is removed: the run names the remaining files.",
        is_served=True,
    ),
    FileSystem(
        name="MooseFS",
        how="master and chunk server on loopback, two mounts",
        packages=("moosefs-master", "moosefs-chunkserver", "moosefs-client"),
        programs=("mfsmaster", "mfschunkserver", "mfsmount"),
        start=moosefs,
        may_fail={
            "POINTER.overwrite-second-client": "On a busy machine a reader on the other client got an older pointer "
            "after a newer one: step 65 after step 68, once in 20,000 overwrites.",
        },
        undecided=_UNSEEN,
        is_served=True,
        # Its master (336 MB) and chunk server (139 MB) need nearly all of 512 MiB, and the kernel kills the master.
        small_memory_bytes=1 << 30,
    ),
    FileSystem(
        name="CephFS",
        how="one object store on loopback, two mounts by ceph-fuse, mds_tick_interval=0.2",
        packages=("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-fuse", "ceph-common"),
        programs=("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-fuse", "ceph", "monmaptool"),
        start=cephfs,
        may_fail={"COMMIT.file-second-client": _FOUND},
        shows={"COMMIT.file-second-client": "replaced"},
        is_served=True,
    ),
    FileSystem(
        name="GlusterFS",
        how="one brick on loopback, two mounts",
        packages=("glusterfs-server", "glusterfs-client"),
        programs=("glusterd", "gluster", "glusterfs"),
        start=glusterfs(),
        fails={
            "VISIBLE.read-after-close": "The other client reads the old bytes of a file that was closed, for 1 s.",
        },
        may_fail={
            "POINTER.overwrite-second-client": "The other client reads the old pointer for 1 s.",
            "COMMIT.file": _FOUND,
            "COMMIT.file-second-client": _FOUND,
            "STALE.attributes": "A client keeps sizes and times for 1 s, which is the limit.",
            "STALE.names": "A client keeps names for 1 s, which is the limit.",
            "PUBLISH.marker": _OLD_LENGTH,
            "EXCLUSIVE.create-second-client": _NOBODY,
            "MKDIR.race-second-client": _NOBODY,
        },
        shows={
            "STALE.attributes": "attributes",
            "STALE.names": "removed_names",
            "COMMIT.file": "replaced",
            "COMMIT.file-second-client": "replaced",
            "VISIBLE.read-after-close": "rewritten",
            "POINTER.overwrite-second-client": "rewritten",
            "EXCLUSIVE.create-second-client": "directory_made_once",
            "MKDIR.race-second-client": "directory_made_once",
        },
        undecided=_UNSEEN,
        is_served=True,
    ),
    FileSystem(
        name="GlusterFS without caches",
        how="two mounts with attribute-timeout=0,entry-timeout=0,fopen-keep-cache=false, volume with "
        "performance.stat-prefetch off and performance.quick-read off",
        packages=("glusterfs-server", "glusterfs-client"),
        programs=("glusterd", "gluster", "glusterfs"),
        start=glusterfs(
            ("performance.stat-prefetch off", "performance.quick-read off"),
            "attribute-timeout=0,entry-timeout=0,fopen-keep-cache=false",
        ),
        may_fail={
            "COMMIT.file": _FOUND,
            "COMMIT.file-second-client": _FOUND,
            "EXCLUSIVE.create-second-client": _NOBODY,
            "MKDIR.race-second-client": _NOBODY,
        },
        undecided=_UNSEEN,
        shows={
            "COMMIT.file": "replaced",
            "COMMIT.file-second-client": "replaced",
            "EXCLUSIVE.create-second-client": "directory_made_once",
            "MKDIR.race-second-client": "directory_made_once",
        },
        cures="GlusterFS",
        cured_ways=("rewritten", "attributes", "removed_names"),
    ),
)

BY_NAME = {row.name: row for row in FILE_SYSTEMS}
SERVED = tuple(row for row in FILE_SYSTEMS if row.is_served)
