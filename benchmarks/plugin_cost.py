"""Cost of the plugin for a pytest run that does not use it: ``python benchmarks/plugin_cost.py [pairs]``.

The first value is the CPU time of three steps: import the plugin, register it with its options and hooks, and call its
``pytest_configure``. The second value is the CPU time of complete processes with the plugin minus that of processes
without the plugin. The second value is less exact, because the start of a process varies by more than the plugin costs.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# Runs pytest in this process, and sums the CPU time that only our plugin causes.
METERED = """
import functools, importlib.metadata, sys, time
import pytest
from pytest import PytestPluginManager

spent = 0.0
is_inside = False

def timed(function):
    @functools.wraps(function)
    def call(*args, **named):
        global spent, is_inside
        if is_inside:
            return function(*args, **named)
        is_inside, start = True, time.process_time()
        try:
            return function(*args, **named)
        finally:
            spent += time.process_time() - start
            is_inside = False
    return call

load, register = importlib.metadata.EntryPoint.load, PytestPluginManager.register

def load_ours(self):
    return timed(load)(self) if self.value.startswith("pytest_ckpt") else load(self)

def register_ours(self, plugin, name=None):
    if not getattr(plugin, "__name__", "").startswith("pytest_ckpt"):
        return register(self, plugin, name)
    found = timed(register)(self, plugin, name)
    for implementation in self.hook.pytest_configure.get_hookimpls():
        if implementation.plugin is plugin:
            implementation.function = timed(implementation.function)
    return found

importlib.metadata.EntryPoint.load = load_ours
PytestPluginManager.register = register_ours
code = pytest.main(["-q", "-p", "no:cacheprovider"])
assert code == 0 and spent > 0
print("SPENT", spent)
"""
PLUGIN = "pytest_ckpt.plugin.session_hooks"


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    # Use compiled bytecode, as after an installation, whatever the environment sets.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    inside: list[float] = []
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        environment["PYTHONPYCACHEPREFIX"] = str(Path(directory) / "bytecode")
        base = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        ways = {"with": base, "without": [*base, "-p", f"no:{PLUGIN}"]}

        def run(command: list[str]) -> tuple[float, str]:
            """Run a command; return its CPU seconds (user and system) and its output."""
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            output = subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True, text=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, output.stdout

        for pair in range(pairs + 1):
            _, output = run([sys.executable, "-c", METERED])
            spent = {way: run(ways[way])[0] for way in sorted(ways, reverse=bool(pair % 2))}
            if pair:  # the first pair writes the bytecode
                inside.append(float(output.rpartition("SPENT")[2]))
                for way, found in spent.items():
                    seconds[way].append(found)
    low, _, high = statistics.quantiles(inside, n=4)
    print(
        f"inside the process: median {statistics.median(inside) * 1000:.1f} ms of CPU "
        f"(quartiles {low * 1000:.1f} and {high * 1000:.1f}, {len(inside)} processes)"
    )
    differences = [a - b for a, b in zip(seconds["with"], seconds["without"], strict=True)]
    for way, found in seconds.items():
        print(f"whole process {way} the plugin: median {statistics.median(found) * 1000:.0f} ms of CPU")
    print(f"difference, pair by pair: median {statistics.median(differences) * 1000:.1f} ms of CPU")


if __name__ == "__main__":
    main()
