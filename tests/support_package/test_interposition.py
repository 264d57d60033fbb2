"""Preloaded libraries that replace calls of the C library: the report names each library and its calls.

Other preloaded code is reported as a start-up hook.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ckpt.support.interposition import interposed_calls, is_profiler, start_hooks
from tests.support import CHECKOUT
from tests.support.machine import need

LOOK = """
import json, os
from pytest_ckpt.support.interposition import interposed_calls, start_hooks
print(json.dumps([interposed_calls(), start_hooks(), os.getpid()]))
"""
NO_FSYNC = "int fsync(int fd) { return 0; }\nint fdatasync(int fd) { return 0; }\n"
ALLOCATOR = "int je_version(void) { return 5; }\n"
AUDIT = "unsigned int la_version(unsigned int version) { return version; }\n"
SLOW_CLOCK = (
    "import time\ndef perf_counter(real=time.perf_counter):\n    return real() / 10\ntime.perf_counter = perf_counter\n"
)


def start_and_inspect(**environment):
    """Start a process with this environment; return its ({library: replaced calls}, start-up hooks)."""
    path = f"{environment.pop('PYTHONPATH', '')}:{CHECKOUT}"
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    calls, hooks, _ = json.loads(done.stdout.splitlines()[-1])
    return calls, hooks


@pytest.fixture
def compiled(tmp_path):
    """Return a function that compiles C code into a shared library and returns its path."""

    def make(source, name):
        need(shutil.which("gcc"), "needs a C compiler")
        file, library = tmp_path / "source.c", tmp_path / name
        file.write_text(source)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, file], check=True)
        return library

    return make


def test_nothing_answers_calls_in_a_plain_process():
    calls, hooks = start_and_inspect()
    assert calls == {}
    assert not any(hook.startswith(("LD_", "PYTHON", "C library", "profiler")) for hook in hooks)


def test_a_preloaded_library_is_named_with_the_calls_that_it_answers(compiled):
    library = compiled(NO_FSYNC, "no_fsync.so")
    calls, hooks = start_and_inspect(LD_PRELOAD=str(library))
    assert {by: set(names) for by, names in calls.items()} == {str(library): {"fsync", "fdatasync"}}
    assert f"LD_PRELOAD={library}" in hooks


def test_the_calls_of_every_offset_that_python_makes_are_looked_for(compiled):
    reads = "long preadv64v2(int f, const void *v, int n, long o, int g) { return -1; }\n"
    library = compiled(reads + "int ftruncate64(int f, long o) { return 0; }\n", "reads.so")
    calls, _ = start_and_inspect(LD_PRELOAD=str(library))
    assert sorted(calls[str(library)]) == ["ftruncate64", "preadv64v2"]


def test_a_preloaded_library_without_calls_of_io_is_only_disclosed(compiled):
    library = compiled(ALLOCATOR, "libjemalloc.so.2")
    calls, hooks = start_and_inspect(LD_PRELOAD=str(library))
    assert calls == {}
    assert f"LD_PRELOAD={library}" in hooks


def test_a_library_that_is_loaded_and_then_removed_answers_unknown_calls(compiled, tmp_path):
    library = compiled(NO_FSYNC, "no_fsync.so")
    place = tmp_path / "first"
    place.mkdir()
    (place / "sitecustomize.py").write_text(f"import os\nos.unlink({str(library)!r})\n")
    calls, _ = start_and_inspect(LD_PRELOAD=str(library), PYTHONPATH=str(place))
    assert [names for by, names in calls.items() if by.startswith(str(library))]


def test_a_profiler_of_io_is_disclosed_with_its_name_and_its_calls(compiled):
    library = compiled(NO_FSYNC, "libdarshan.so")
    calls, hooks = start_and_inspect(LD_PRELOAD=str(library))
    assert [by for by in calls if is_profiler(by)] == [str(library)]
    assert f"profiler of I/O: {library} answers fsync, fdatasync" in hooks


@pytest.mark.parametrize(("by", "profiler"), [
    ("/opt/lib/libdarshan.so", True),
    ("/opt/lib/libdarshan-util.so.3", True),
    ("/opt/darshan/no_fsync.so", False),
    ("/opt/lib/notlibdarshan.so", False),
])  # fmt: skip
def test_a_profiler_is_known_by_the_name_of_its_file(by, profiler):
    assert is_profiler(by) is profiler


def test_an_auditing_library_is_disclosed(compiled):
    library = compiled(AUDIT, "audit.so")
    _, hooks = start_and_inspect(LD_AUDIT=str(library))
    assert f"LD_AUDIT={library}" in hooks


def test_a_c_library_of_ones_own_is_disclosed(tmp_path):
    own = Path(_c_library())
    shutil.copy(own, tmp_path / own.name)
    calls, hooks = start_and_inspect(LD_LIBRARY_PATH=str(tmp_path))
    assert calls == {}
    assert f"C library of LD_LIBRARY_PATH: {tmp_path / own.name}" in hooks
    _, hooks = start_and_inspect(LD_LIBRARY_PATH="/nowhere::")
    assert not any(hook.startswith("C library") for hook in hooks)


def _c_library():
    for line in Path("/proc/self/maps").read_text().splitlines():
        if Path(name := line.split()[-1]).name.startswith("libc.so"):
            return name
    pytest.skip("the C library is no libc.so here")


def test_a_start_up_hook_that_replaces_a_clock_is_named(tmp_path):
    hook = tmp_path / "sitecustomize.py"
    hook.write_text(SLOW_CLOCK)
    calls, hooks = start_and_inspect(PYTHONPATH=str(tmp_path))
    assert calls == {str(hook): ["time.perf_counter"]}
    assert f"sitecustomize of Python: {hook}" in hooks
    assert f"PYTHONPATH={tmp_path}" in hooks


def test_a_start_up_hook_that_replaces_nothing_is_only_disclosed(tmp_path):
    hook = tmp_path / "sitecustomize.py"
    # As Debian's own, which installs an excepthook.
    hook.write_text("try:\n    import apport_python_hook\nexcept ImportError:\n    pass\n")
    calls, hooks = start_and_inspect(PYTHONPATH=str(tmp_path))
    assert calls == {}
    assert f"sitecustomize of Python: {hook}" in hooks


def test_a_callable_that_is_no_function_is_named_by_its_type(monkeypatch):
    class Slow:
        def __call__(self):
            return 0.0

    monkeypatch.setattr("time.perf_counter", Slow())
    assert interposed_calls()["a Slow of Python"] == ("time.perf_counter",)


def test_a_built_in_function_in_the_place_of_another_is_named(monkeypatch):
    monkeypatch.setattr("os.fsync", os.fstat)
    assert interposed_calls()["posix.fstat of Python"] == ("os.fsync",)


def test_variables_of_python_are_disclosed_and_those_of_this_program_are_not():
    environment = {"PYTHONPATH": f"{CHECKOUT}:/x", "PYTHONSTARTUP": "/y.py", "PYTHONUNBUFFERED": "1", "HOME": "/"}
    found = [hook for hook in start_hooks(environment) if hook.startswith("PYTHON")]
    assert found == ["PYTHONPATH=/x", "PYTHONSTARTUP=/y.py"]


def test_an_import_line_of_a_path_file_is_disclosed(monkeypatch, tmp_path):
    (tmp_path / "runs.pth").write_text("/some/directory\nimport os\n")
    (tmp_path / "paths.pth").write_text("/some/directory\nimportant/directory\n")
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr("site.getusersitepackages", lambda: str(tmp_path / "none"))
    found = [hook for hook in start_hooks({}) if hook.startswith("start-up file")]
    assert found == [f"start-up file of Python: {tmp_path / 'runs.pth'}"]


def test_libraries_of_the_whole_host_are_disclosed(monkeypatch, tmp_path):
    listed = tmp_path / "ld.so.preload"
    listed.write_text("/usr/lib/one.so\n/usr/lib/two.so\n")
    monkeypatch.setattr("pytest_ckpt.support.interposition._PRELOADED", listed)
    assert [hook for hook in start_hooks({}) if str(listed) in hook] == [
        f"{listed}: /usr/lib/one.so",
        f"{listed}: /usr/lib/two.so",
    ]


def test_a_library_that_comes_after_the_c_library_answers_nothing(compiled):
    library = ctypes.CDLL(str(compiled(NO_FSYNC, "late.so")))
    assert library.fsync(-1) == 0
    assert not any("late.so" in by for by in interposed_calls())
