"""Whether what is to be compressed can be, and whether its codec's library is here."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from pytest_ckpt.facts.compression import CODECS, EXTRA
from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ckpt.facts.engines import EngineSpec
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.strategies import StrategySpec


def check_codec(engines: Iterable[EngineSpec], strategies: Iterable[StrategySpec], *, compressible: float) -> None:
    """Raise UsageError where an engine's files pass no codec, or its content would not be what is said of it."""
    named = [strategy.name for strategy in strategies if strategy.compresses]
    if not named:
        return
    for engine in engines:
        if not _writes_through_us(engine):
            raise UsageError(
                f"--ckpt-strategy {named[0]} with --ckpt-engine {engine.name}: its library writes files itself, past "
                "the codec.",
                f"Take {' or '.join(spec.name for spec in BUILT_IN if _writes_through_us(spec))}.",
            )
    if compressible:
        raise UsageError(
            f"--ckpt-compressible with --ckpt-strategy {named[0]}: zeros in the content would flatter the codec.",
            "Leave --ckpt-compressible out: content compresses as a measured training state does.",
        )


def check_codec_installed(settings: Settings) -> None:
    """Raise UsageError where the library of the codec is needed and not installed; it is not imported."""
    package, module = (getattr(CODECS[settings.compress.partition(":")[0]], name) for name in ("package", "module"))
    if settings.compresses and importlib.util.find_spec(module.partition(".")[0]) is None:
        raise UsageError(
            f"--ckpt-compress {settings.compress} needs the package {package}, which is not installed.",
            f"Run: pip install 'pytest-ckpt[{EXTRA}]'.",
        )


def _writes_through_us(engine: EngineSpec) -> bool:
    return not engine.is_collective and "paths" not in engine.needs
