"""An example value for every option of the contract, and functions that resolve settings."""

from __future__ import annotations

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.sizing.architectures import MODELS

# For each option: a value other than the default, the name of its field in the settings, and the parsed value.
VALUES = {
    "target": ("/mnt/array", "target", "/mnt/array"),
    "cluster": ("24000", "cluster", 24_000),
    "save_budget": ("3%", "save_budget", 0.03),
    "load_budget": ("2%", "load_budget", 0.02),
    "checkpoints_per_failure": ("10", "checkpoints_per_failure", 10),
    "failures": ("mttf:50000h", "failures", "mttf:50000h"),
    "model": ("llama3-8b", "models", (MODELS["llama3-8b"],)),
    "mode": ("open", "mode", "open"),
    "ranks": ("16", "ranks", 16),
    "hosts": ("n1:4,n2:4", "hosts", (HostSlots(name="n1", slots=4), HostSlots(name="n2", slots=4))),
    "launcher": ("srun --mpi=pmix", "launcher", "srun --mpi=pmix"),
    "engine": ("torch", "engines", (BUILT_IN[1],)),
    "profile": ("smoke", "profile", "smoke"),
    "scale": ("1/8", "scale", 0.125),
    "operations": ("7", "operations", 7),
    "drop_caches": ("never", "drop_caches", "never"),
    "io_timeout": ("2min", "io_timeout_seconds", 120.0),
    "seed": ("42", "seed", 42),
    "keep_files": ("on", "keep_files", True),
    "report": ("/var/tmp/r", "report", "/var/tmp/r"),
}
KEYS = list(VALUES)


def settings_of(command_line=(), ini=()):
    return resolve(as_options(command_line), as_options(ini))


def as_options(stated):
    return {f"ckpt_{key}": value for key, value in dict(stated).items()}
