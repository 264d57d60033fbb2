"""How finely this machine's clock counts, for `doctor`."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from pytest_ckpt.run.findings import Finding

_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_SLOW_CLOCKS = frozenset({"jiffies", "acpi_pm", "hpet"})
_FINEST_SECONDS = 1e-6


def clock() -> Finding:
    """Look at the steps of the monotonic clock, and at what the kernel reads it from."""
    step = time.get_clock_info("monotonic").resolution
    source = ""
    with contextlib.suppress(OSError):
        source = _CLOCK_SOURCE.read_text().strip()
    description = f"monotonic, steps of {step * 1e9:.0f} ns" + (f", source {source}" if source else "")
    if step > _FINEST_SECONDS or source in _SLOW_CLOCKS:
        remedy = "Boot with a better clock source (tsc, kvm-clock): this one is slow to read or coarse."
        return Finding(name="clock", can=False, needed=False, description=description, remedy=remedy)
    return Finding(name="clock", can=True, needed=False, description=description)
