"""The origin of each input of a limit: published, set by the operator, or a default of this program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Text
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.facts.settings import Settings

InputOrigin = Literal["published", "set by the operator", "default of this program"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """A publication that states a value or a rule."""

    title: str
    publisher: str
    year: int

    @property
    def citation(self) -> str:
        """The publisher, the title and the year."""
        return f"{self.publisher}, {self.title}, {self.year}"


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitInput:
    """One input of the limits: an option, its value as text, its origin, and the publication of a published value."""

    option: Text
    value: str
    origin: InputOrigin
    source: str

    @property
    def mark(self) -> str:
        """The origin for people, with the citation of a published value."""
        return f"{self.origin} ({self.source})" if self.source else self.origin

    @property
    def sentence(self) -> str:
        """The input and its origin for people."""
        return f"{self.option} {self.value}: {self.mark}."


_LLAMA_3 = Publication(title="The Llama 3 Herd of Models", publisher="Meta", year=2024)
_CHECKPOINTING = "article on the checkpointing workload of MLPerf Storage v2.0"
_ARTICLE = Publication(title=_CHECKPOINTING, publisher="MLCommons", year=2025)
_GUIDANCE = Publication(title=f"{_CHECKPOINTING}, after guidance of NVIDIA", publisher="MLCommons", year=2025)

DEFAULTS: Mapping[str, Publication | None] = {
    "cluster": None,
    "failures": _LLAMA_3,
    "checkpoints_per_failure": _ARTICLE,
    "save_budget": _GUIDANCE,
    "load_budget": None,
    "target_share": None,
    "preemption_notice": None,
    "serving_limit": None,
    "consolidate_limit": None,
    "vendor_max_rate": None,
    "loader_rate": None,
}
"""The options that limits follow from, by key, each with the publication of its default; None: the default is ours."""

_OPTIONS = {option.key: option for option in OPTIONS}


def limit_inputs(settings: Settings) -> tuple[LimitInput, ...]:
    """Return the inputs of the limits of a run that have a value, in the order of the derivation."""
    # The default of such a limit has no effect unless the run performs the measurement that it limits.
    idle = {
        "target_share": not settings.has_tiers,
        "consolidate_limit": not settings.asks_serving,
        "loader_rate": not settings.asks_contention,
    }
    values = {origin.option: origin.value for origin in settings.origins}
    found = []
    for key, publication in DEFAULTS.items():
        option = _OPTIONS[key]
        is_said, value = settings.is_said(option.flag), values.get(option.flag, "")
        if not value or (idle.get(key) and not is_said):
            continue
        is_published = publication is not None and not is_said
        found.append(
            LimitInput(
                option=option.usual_flag,
                value=value,
                origin="set by the operator" if is_said else "published" if is_published else "default of this program",
                source=publication.citation if publication and is_published else "",
            )
        )
    return tuple(found)
