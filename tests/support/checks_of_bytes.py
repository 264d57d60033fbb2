"""Table of faults that are injected into the process of a check, instead of into a target.

An entry contains the check that must detect the fault, the code that injects the fault, and the expected finding.
"""

from __future__ import annotations

_EXTRAS = "import os; from pytest_ckpt.conformance.posix import capabilities as extras; real = extras._fallocate\n"
LIES = {
    "no O_DIRECT": (
        "DIRECT.aligned",
        "import os, errno\n"
        "real = os.open\n"
        "def lie(path, flags, *mode, **more):\n"
        "    if flags & os.O_DIRECT: raise OSError(errno.EINVAL, 'Invalid argument', path)\n"
        "    return real(path, flags, *mode, **more)\n"
        "os.open = lie",
        "O_DIRECT refused",
    ),
    "a torn direct write": (
        "DIRECT.aligned",
        "import os\n"
        "real = os.pwritev\n"
        "def lie(descriptor, views, offset):\n"
        "    if len(views[0]) < 4096 or offset != 7 * len(views[0]): return real(descriptor, views, offset)\n"
        "    real(descriptor, [views[0][:2048]], offset)\n"
        "    return len(views[0])\n"
        "os.pwritev = lie",
        "torn write",
    ),
    "a direct write that is lost": (
        "DIRECT.aligned",
        "import os\n"
        "real, lost = os.pwritev, []\n"
        "def lie(descriptor, views, offset):\n"
        "    if lost or offset != 2 * len(views[0]): return real(descriptor, views, offset)\n"
        "    lost.append(offset)\n"
        "    return len(views[0])\n"
        "os.pwritev = lie",
        "zeros instead of data",
    ),
    "buffered bytes that direct reads do not see": (
        "DIRECT.coherent",
        "import os\nreal = os.pwrite\nos.pwrite = lambda descriptor, data, offset: len(data)",
        "bytes of an older version",
    ),
    "direct reads that are moved by a block": (
        "DIRECT.coherent",
        "import os\n"
        "real = os.preadv\n"
        "os.preadv = lambda descriptor, views, offset: real(descriptor, views, offset + 4096)",
        "misplaced bytes",
    ),
    "no mmap": (
        "MMAP.private",
        "import mmap, errno\n"
        "real = mmap.mmap\n"
        "def lie(descriptor, *a, **k):\n"
        "    if descriptor >= 0: raise OSError(errno.ENODEV, 'No such device')\n"
        "    return real(descriptor, *a, **k)\n"
        "mmap.mmap = lie",
        "mmap refused",
    ),
    "a file that is cut while it is mapped": (
        "MMAP.shared",
        "import mmap, os\n"
        "real = mmap.mmap\n"
        "def lie(descriptor, *a, **k):\n"
        "    mapped = real(descriptor, *a, **k)\n"
        "    if descriptor >= 0: os.truncate(f'/proc/self/fd/{descriptor}', 4096)\n"
        "    return mapped\n"
        "mmap.mmap = lie",
        "SIGBUS while reading a mapping",
    ),
    "a private mapping that is shared": (
        "MMAP.private",
        "import mmap\n"
        "real, copy = mmap.mmap, mmap.ACCESS_COPY\n"
        "from pathlib import Path\n"
        "was = Path.open\n"
        "Path.open = lambda path, mode='r', *a, **k: was(path, 'r+b' if mode == 'rb' else mode, *a, **k)\n"
        "def lie(descriptor, size, access=0):\n"
        "    return real(descriptor, size, access=mmap.ACCESS_WRITE if access == copy else access)\n"
        "mmap.mmap = lie",
        "private mapping reached the file",
    ),
    "a hole that is not empty": (
        "SPARSE.tail-first",
        "import os\n"
        "real = os.fsync\n"
        "def lie(descriptor):\n"
        "    with open(f'/proc/self/fd/{descriptor}', 'r+b') as file:\n"
        "        if file.read(1) == b'\\0': os.pwrite(file.fileno(), b'garbage', 0)\n"
        "    real(descriptor)\n"
        "os.fsync = lie",
        "bytes in a hole",
    ),
    "a stripe that is lost": (
        "SPARSE.disjoint-writers",
        "import os\n"
        "real = os.pwrite\n"
        "os.pwrite = lambda f, data, offset: real(f, data, offset) if offset != 3 * len(data) else len(data)",
        "zeros instead of data",
    ),
    "a copy of a new file by what is told as data": (
        "CLONE-FRESH.copy",
        "import errno, os\n"
        "real = os.lseek\n"
        "def lie(descriptor, at, how):\n"
        "    if how == os.SEEK_DATA: raise OSError(errno.ENXIO, 'No such device or address')\n"
        "    return real(descriptor, at, how)\n"
        "os.lseek = lie",
        "zeros instead of data",
    ),
    "a copy of a new file that ends early": (
        "CLONE-FRESH.copy",
        "import os\n"
        "real = os.copy_file_range\n"
        "os.copy_file_range = lambda source, copy, size: real(source, copy, 4096) if size > 100_000 else 0",
        "file cut short",
    ),
    "a clone of a new file that is empty blocks": (
        "CLONE-FRESH.copy",
        "import fcntl, os\nfcntl.ioctl = lambda copy, request, source: os.ftruncate(copy, os.fstat(source).st_size)",
        "zeros instead of data",
    ),
    "offsets of 32 bits": (
        "LARGE.offsets",
        "import os\nreal = os.pwrite\nos.pwrite = lambda f, data, offset: real(f, data, offset & 0xFFFFFFFF)",
        "wrapped offset",
    ),
    "offsets that are refused although so large a file is not": (
        "LARGE.offsets",
        "import os, errno\n"
        "real = os.pwrite\n"
        "def lie(f, data, offset):\n"
        "    if offset > 1 << 41: raise OSError(errno.EFBIG, 'File too large')\n"
        "    return real(f, data, offset)\n"
        "os.pwrite = lie",
        "large offset refused",
    ),
    "a size of 32 bits": (
        "LARGE.offsets",
        "from pathlib import Path\n"
        "from types import SimpleNamespace\n"
        "real = Path.stat\n"
        "def lie(path, **k):\n"
        "    seen = real(path, **k)\n"
        "    if not path.name.startswith('large'): return seen\n"
        "    return SimpleNamespace(st_size=seen.st_size & 0xFFFFFFFF, st_blocks=seen.st_blocks)\n"
        "Path.stat = lie",
        "wrong size",
    ),
    "a removed file that is gone for its reader": (
        "UNLINK.open-reader",
        "from pathlib import Path\n"
        "real = Path.unlink\n"
        "def lie(path, **k):\n"
        "    with open(path, 'r+b') as file: file.truncate(0)\n"
        "    real(path, **k)\n"
        "Path.unlink = lie",
        "file cut short",
    ),
    "a removed file whose space is given to another": (
        "UNLINK.open-reader",
        "from pathlib import Path\n"
        "real = Path.replace\n"
        "def lie(path, to):\n"
        "    with open(to, 'r+b') as file: file.write(path.read_bytes())\n"
        "    real(path, to)\n"
        "Path.replace = lie",
        "wrong bytes",
    ),
    "locks that lock nobody out": (
        "CAPABILITIES.flock",
        "import fcntl\nfcntl.flock = lambda descriptor, mode: None",
        "exclusive lock given twice",
    ),
    "no locks": (
        "CAPABILITIES.flock",
        "import fcntl, errno\n"
        "def lie(descriptor, mode): raise OSError(errno.ENOSYS, 'Function not implemented')\n"
        "fcntl.flock = lie",
        "flock refused",
    ),
    "a shared lock that shuts out others that share": (
        "CAPABILITIES.flock",
        "import fcntl\n"
        "real = fcntl.flock\n"
        "def lie(descriptor, mode):\n"
        "    real(descriptor, mode if mode & fcntl.LOCK_UN else mode & ~fcntl.LOCK_SH | fcntl.LOCK_EX)\n"
        "fcntl.flock = lie",
        "shared lock refused",
    ),
    "a clone with other bytes": (
        "CAPABILITIES.extras",
        "import fcntl, os\nfcntl.ioctl = lambda copy, request, file: os.pwrite(copy, b'other bytes', 0)",
        "reflink (FICLONE) wrong",
    ),
    "space that is reserved over what was written": (
        "CAPABILITIES.extras",
        f"{_EXTRAS}"
        "def lie(descriptor, mode, offset, length):\n"
        "    real(descriptor, mode, offset, length)\n"
        "    if not mode: os.pwrite(descriptor, bytes(512), 4096)\n"
        "extras._fallocate = lie",
        "fallocate wrong",
    ),
    "space that is reserved and not added": (
        "CAPABILITIES.extras",
        f"{_EXTRAS}extras._fallocate = lambda *of: None",
        "fallocate wrong",
    ),
    "a hole that is not punched": (
        "CAPABILITIES.extras",
        f"{_EXTRAS}extras._fallocate = lambda descriptor, mode, *of: None if mode else real(descriptor, mode, *of)",
        "punching holes wrong",
    ),
    "a hole that is punched too far": (
        "CAPABILITIES.extras",
        f"{_EXTRAS}"
        "def lie(descriptor, mode, offset, length):\n"
        "    if mode: os.pwrite(descriptor, bytes(length + 512), offset)\n"
        "    else: real(descriptor, mode, offset, length)\n"
        "extras._fallocate = lie",
        "punching holes wrong",
    ),
    "no hard links": (
        "CAPABILITIES.links",
        "from pathlib import Path\n"
        "import errno\n"
        "def lie(path, to): raise OSError(errno.EPERM, 'Operation not permitted')\n"
        "Path.hardlink_to = lie",
        "hard links refused",
    ),
    "hard links that are copies": (
        "CAPABILITIES.links",
        "from pathlib import Path\nPath.hardlink_to = lambda path, to: path.write_bytes(to.read_bytes())",
        "link leads elsewhere",
    ),
    "times that run backwards": (
        "CAPABILITIES.mtime",
        "import os\n"
        "real, at = os.fsync, [10**18]\n"
        "def lie(descriptor):\n"
        "    real(descriptor); at[0] -= 1; os.utime(descriptor, ns=(at[0], at[0]))\n"
        "os.fsync = lie",
        "modification times in wrong order",
    ),
    "times of whole seconds": (
        "CAPABILITIES.mtime",
        "import os\n"
        "real = os.fsync\n"
        "def lie(descriptor):\n"
        "    real(descriptor); at = int(os.fstat(descriptor).st_mtime); os.utime(descriptor, (at, at))\n"
        "os.fsync = lie",
        "modification times are equal",
    ),
    "a clock that is two seconds late": (
        "CAPABILITIES.mtime",
        "import os\n"
        "real = os.fsync\n"
        "def lie(descriptor):\n"
        "    real(descriptor); at = os.fstat(descriptor).st_mtime_ns - 2 * 10**9; os.utime(descriptor, ns=(at, at))\n"
        "os.fsync = lie",
        "modification time is off",
    ),
    "names without case": (
        "CAPABILITIES.names",
        "from pathlib import Path\n"
        "real = Path.open\n"
        "Path.open = lambda path, *a, **k: real(path.with_name(path.name.lower()), *a, **k)",
        "names folded or cut",
    ),
    "names that are cut": (
        "CAPABILITIES.names",
        "from pathlib import Path\n"
        "real = Path.open\n"
        "Path.open = lambda path, *a, **k: real(path.with_name(path.name[:200]), *a, **k)",
        "names folded or cut",
    ),
    "names of at most 143 bytes": (
        "CAPABILITIES.names",
        "from pathlib import Path\n"
        "import errno\n"
        "real = Path.open\n"
        "def lie(path, *a, **k):\n"
        "    if len(path.name.encode()) > 143: raise OSError(errno.ENAMETOOLONG, 'File name too long')\n"
        "    return real(path, *a, **k)\n"
        "Path.open = lie",
        "name refused",
    ),
}
