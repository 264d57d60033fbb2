"""The table of file systems.

A row states how to mount a file system, which checks fail and why, how to reproduce the failures, and the remedies.
"""

from __future__ import annotations

from tests.support.file_systems.ceph import cephfs
from tests.support.file_systems.entry import FileSystem
from tests.support.file_systems.local import (
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
from tests.support.file_systems.servers import SFTP_SERVER, glusterfs, moosefs, rclone, sshfs

_E2FS = ("e2fsprogs",)
_BY_PATH = (
    "The file system finds a file by its path. If a rename has just removed this path, open fails with ENOENT, "
    "although the name always exists. A job that reads the `latest` pointer fails, or starts without a checkpoint."
)
_BY_PATH_AND_LENGTH = (
    "sshfs finds a file by its path and caches its length for 20 s. While the file is replaced, open returns ENOENT, "
    "or a reader gets the new bytes cut off at the old length. These are bytes of no version."
)
_REPLACED = {"COMMIT.file": _BY_PATH}
_SHOWS_REPLACED = {"COMMIT.file": "replaced"}
_FULL = (
    "If the server is full, it returns EIO, because sftp has no ENOSPC. A job cannot distinguish this from a broken "
    "disk."
)
_EMPTY = (
    "sshfs opens a directory by one path and lists it by another. During a rename a listing of the directory is empty."
)
_FOUND = (
    "The client looks up a name and then opens the file that it found. If a rename has just replaced this file, open "
    "fails with ENOENT, or repeatedly with ESTALE."
)
_OLD_LENGTH = (
    "For 1 s, a client that sees the marker may read an older version of a file, or a file cut off at its old length."
)
_NOBODY = "In one of hundreds of races for a name, no client wins: both clients get EEXIST, and the name exists."
_UNSEEN = {"COLD": "In this run the kernel showed no cached pages. The cache of the client process is not observable."}

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
        fails={"COLD": "tmpfs stores files in memory, so reads do not come from storage."},
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
        may_fail={
            "LIVE.calls": "The removal of a directory may fail with ENOTEMPTY, although all its files were removed."
        },
        shows=_SHOWS_REPLACED,
        leaves="fuse2fs may return EIO when the run removes the directory of the checks. The run then names the "
        "remaining files.",
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
            "COMMIT.file": "While a file is replaced, a reader gets ENOENT, the length of another version, or bytes of "
            "two versions."
        },
        may_fail={
            "COMMIT.directory": "During a rename a listing of the directory lacks some or all of its files.",
            "POINTER.overwrite": "While a file is overwritten, a reader may get EIO. This occurred in two of ten runs.",
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
        fails={"COMMIT.directory": "During a rename a listing of the directory lacks some or all of its files."},
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
            "VISIBLE.read-after-close": "The other client reads a file, and the file then grows and is closed. From 1 "
            "s to 20 s after its first read, the other client reads the file only to the old length.",
            "POINTER.overwrite-second-client": "The other client reads a pointer, and a longer text is then written to "
            "the pointer. For 20 s the other client reads the new text only to the old length: global_step2 in place "
            "of global_step25.",
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
            "VISIBLE.append": "If bytes are appended 1.2 s after the other client read the file, the other client does "
            "not see them.",
            "NAMES.many": "Each new file needs several requests to the server: 10,000 files take about 10 s, the "
            "limit.",
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
        cured_reproductions=("lengthened", "attributes", "removed_names", "listed"),
    ),
    FileSystem(
        name="rclone",
        how="rclone mount of a WebDAV server, cache mode full",
        packages=("rclone",),
        programs=("rclone",),
        start=rclone("full"),
        fails={
            "COMMIT.file": "rclone uploads a file some time after the file was closed, under the name that the file "
            "has then. If the file is renamed before the upload, it is empty or cut short. These are bytes of no "
            "version.",
            "DURABLE.rank-killed": "If files are written and synced, and their directory is renamed, these files are "
            "cut short.",
        },
        may_fail={
            "LOAD": "No load was complete: see INTEGRITY.",
            "INTEGRITY": "If rclone uploads files only after their directory was renamed, these files are empty, "
            "although they were written and synced before.",
            "UNLINK.open-reader": "If a mapped file is removed, a read through the mapping ends with SIGBUS.",
        },
        shows={"COMMIT.file": "replaced", "DURABLE.rank-killed": "committed"},
        undecided=_UNSEEN,
        gates="gateway",
        leaves="rclone may return EIO when the run removes the directory of the checks. The run then names the "
        "remaining files.",
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
            "VISIBLE.read-after-close": "For 1 s after a file was closed, the other client reads its old bytes.",
        },
        may_fail={
            "POINTER.overwrite-second-client": "For 1 s after a pointer was overwritten, the other client reads its "
            "old text.",
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
        cured_reproductions=("rewritten", "attributes", "removed_names"),
    ),
)

BY_NAME = {row.name: row for row in FILE_SYSTEMS}
SERVED = tuple(row for row in FILE_SYSTEMS if row.is_served)
