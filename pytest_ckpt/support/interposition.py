"""Finds hooks that run before a program, and replaced functions for I/O and clocks in this process.

The dynamic linker uses the first library that exports a name. Libraries in LD_PRELOAD precede the C library. So the
libraries before the C library are searched for the names of these functions.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import os
import re
import site
import sys
import time
from pathlib import Path
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from pytest_ckpt.support.resources import PACKAGE_HOME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CALLS = (
    *("open", "open64", "openat", "openat64", "close", "read", "write", "pread", "pread64", "pwrite", "pwrite64"),
    *("readv", "writev", "preadv", "pwritev", "fsync", "fdatasync", "syncfs", "sync", "sync_file_range", "msync"),
    *("mmap", "mmap64", "fopen", "fopen64", "fread", "fwrite", "fflush", "rename", "renameat", "posix_fadvise"),
    *("posix_fadvise64", "copy_file_range", "sendfile", "ioctl", "syscall", "fcntl", "fcntl64", "stat", "fstat"),
    *("clock_gettime", "gettimeofday", "time", "clock_nanosleep", "nanosleep", "ftruncate", "unlink"),
    # Variants of these names that Python and other programs with 64-bit offsets call.
    *("preadv2", "preadv64", "preadv64v2", "pwritev2", "pwritev64", "pwritev64v2", "ftruncate64", "fallocate"),
    *("fallocate64", "lseek", "lseek64", "stat64", "fstat64", "lstat", "lstat64", "fstatat", "fstatat64", "sendfile64"),
    *("splice", "renameat2", "unlinkat", "readdir", "readdir64"),
)
# Before glibc 2.34, threads and clocks were separate libraries.
_OF_THE_C_LIBRARY = re.compile(r"(?:libc|libpthread|librt|ld)[-.].*|ld-.*")
# I/O profilers that forward every call. They are disclosed, and the effects of fsync and the clock are still tested.
_PROFILERS = re.compile(r"libdarshan[-.].*")
_PYTHON_CALLS = {
    "os": (
        os,
        (
            *("open", "read", "write", "pread", "pwrite", "preadv", "pwritev", "readv", "writev", "ftruncate"),
            *("fsync", "fdatasync", "rename", "replace", "unlink", "stat", "fstat", "posix_fadvise"),
        ),
    ),
    "time": (time, ("perf_counter", "monotonic", "time", "sleep")),
    "builtins": (builtins, ("open",)),
}
_PRELOADED = Path("/etc/ld.so.preload")
# A library in LD_AUDIT may redirect any call, and a search for names does not show this.
_LINKER_VARIABLES = ("LD_PRELOAD", "LD_AUDIT")
_HOOK_MODULES = ("sitecustomize", "usercustomize")
# Values that this program sets for its own processes.
_OWN_VARIABLES = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"})


class _Place(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class _Loaded(ctypes.Structure):
    """The first fields of ``struct dl_phdr_info`` in C."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


def is_profiler(by: str) -> bool:
    """Return whether the library file ``by`` has the name of a known I/O profiler."""
    return bool(_PROFILERS.fullmatch(Path(by).name))


def interposed_calls() -> dict[str, tuple[str, ...]]:
    """Return {library or file: names of the I/O and clock functions that it replaces}.

    The replaced functions are functions of the C library or of Python.
    """
    found: dict[str, list[str]] = {}
    for name, by in (*_of_the_linker(), *_of_python()):
        found.setdefault(by, []).append(name)
    return {by: tuple(names) for by, names in sorted(found.items())}


def start_hooks(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return a phrase for each hook or setting that may change this process before its program starts.

    Hooks are preloaded libraries, I/O profilers, and start-up files of Python. Settings are environment variables.
    """
    found = [f"{name}={environment[name]}" for name in _LINKER_VARIABLES if environment.get(name)]
    found += _preloaded_c_library(environment)
    found += [
        f"profiler of I/O: {by} answers {', '.join(names)}"
        for by, names in interposed_calls().items()
        if is_profiler(by)
    ]
    with contextlib.suppress(OSError):
        found += [f"{_PRELOADED}: {word}" for word in _PRELOADED.read_text(errors="replace").split()]
    for name in _HOOK_MODULES:
        if (module := sys.modules.get(name)) is not None:
            found.append(f"{name} of Python: {getattr(module, '__file__', None) or 'without a file'}")
    found += [f"start-up file of Python: {file}" for file in _running_path_files()]
    own = ("", str(PACKAGE_HOME))
    given = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in own]
    found += [f"PYTHONPATH={os.pathsep.join(given)}"] if given else []
    found += [f"{k}={v}" for k, v in sorted(environment.items()) if k.startswith("PYTHON") and k not in _OWN_VARIABLES]
    return tuple(found)


def _of_the_linker() -> Iterator[tuple[str, str]]:
    """Yield (function, library) for each function that a library before the C library provides."""
    home = _c_library()
    for file in _libraries_before(home):
        if _OF_THE_C_LIBRARY.fullmatch(file.name) and file.parent == Path(home).parent:
            continue
        try:
            library = ctypes.CDLL(str(file), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        except OSError:
            yield "unknown calls", f"{file}, whose file is no longer there"
            continue
        yield from ((name, str(file)) for name in _CALLS if _object_of(library, name) == str(file))


def _c_library() -> str:
    return _object_of(ctypes.CDLL(None), "__libc_start_main")


def _preloaded_c_library(environment: Mapping[str, str]) -> list[str]:
    """Return a phrase on this process's C library if it comes from LD_LIBRARY_PATH; otherwise no phrase."""
    home = Path(_c_library())
    given = [os.path.realpath(path) for path in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    return [f"C library of LD_LIBRARY_PATH: {home}"] if str(home.parent) in given else []


def _libraries_before(last: str) -> list[Path]:
    """Return the libraries of this process that the linker searches before the library ``last``."""
    files: list[str] = []

    def visit_library(loaded: Any, _size: int, _data: Any) -> int:
        # The program itself has no name there, and the kernel's own mapping has a name without a directory.
        if b"/" in (name := loaded.contents.name or b""):
            files.append(os.path.realpath(os.fsdecode(name)))
        return 0

    visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)
    ctypes.CDLL(None).dl_iterate_phdr(visit(visit_library), None)
    return [Path(file) for file in (files[: files.index(last)] if last in files else files)]


def _object_of(library: ctypes.CDLL, name: str) -> str:
    """Return the file of the library in which a name resolves; empty if the name does not resolve."""
    try:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p)
    except AttributeError:
        return ""
    place = _Place()
    if not ctypes.CDLL(None).dladdr(address, ctypes.byref(place)) or not place.file:
        return ""
    return os.path.realpath(os.fsdecode(place.file))


def _of_python() -> Iterator[tuple[str, str]]:
    for module_name, (module, names) in _PYTHON_CALLS.items():
        for name in names:
            function = getattr(module, name, None)
            if isinstance(function, BuiltinFunctionType):
                # One built-in function may replace another: os.fsync = os.fstat.
                if function.__name__ != name:
                    yield f"{module_name}.{name}", f"{function.__module__}.{function.__name__} of Python"
            elif function is not None:
                code = getattr(function, "__code__", None)
                yield f"{module_name}.{name}", code.co_filename if code else f"a {type(function).__name__} of Python"


def _running_path_files() -> Iterator[str]:
    """Yield the .pth files of site-packages that run code when Python starts."""
    for directory in dict.fromkeys((*site.getsitepackages(), site.getusersitepackages())):
        for file in sorted(Path(directory).glob("*.pth")):
            try:
                lines = file.read_text(errors="replace").splitlines()
            except OSError:
                continue
            if any(line.startswith(("import ", "import\t")) for line in lines):
                yield str(file)
