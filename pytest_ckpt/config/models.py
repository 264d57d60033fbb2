"""Which models can be chosen: those of the workload by name, a user's by file, and those that a run has kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_ckpt.config.model_files import checked_model, is_file, read_model
from pytest_ckpt.config.parallelism import Parallelism
from pytest_ckpt.facts.codec import from_plain, misfits
from pytest_ckpt.facts.models import Model
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.support.errors import UsageError

MODEL, UP_TO = "--ckpt-model", "--ckpt-certify-up-to"


@dataclass(frozen=True, kw_only=True, slots=True)
class Models:
    """Those of the workload, files as ``parallelism`` cuts them, and what a run kept, by all its names."""

    parallelism: Parallelism | None = None
    kept: Mapping[str, Model] = field(default_factory=dict)

    def choose(self, words: Iterable[str]) -> tuple[Model, ...]:
        """Return the models that words name, those of the workload first and in its order.

        Raises UsageError for a word that names none and for a file that cannot be read.
        """
        words = list(dict.fromkeys(words))
        found = [self._one(word, MODEL) for word in words if self._kept(word) or is_file(word)]
        ours = [name for name in MODELS if name in words or "all" in words]
        return (*(MODELS[name] for name in ours), *{model.name: model for model in found}.values())

    def choose_one(self, word: str, among: Iterable[Model]) -> Model:
        """Return the model that a certificate is to reach; a file must be one of those that are saved."""
        model = self._one(word, UP_TO) if self._kept(word) or is_file(word) else MODELS[word]
        if not model.own:
            return model
        saved = next((other for other in among if other.name == model.name), None)
        if saved is None:
            raise UsageError(
                f"{UP_TO} {word}: this run does not save it, so nothing can be said of it.",
                f"Name it in {MODEL} too.",
            )
        return saved

    def _one(self, word: str, option: str) -> Model:
        return self._kept(word) or read_model(word, option, self.parallelism)

    def _kept(self, word: str) -> Model | None:
        """Return what a run kept, by what was said of it; by the name of its file, where no other has it."""
        if word in self.kept:
            return self.kept[word]
        file = word.rpartition("/")[2]
        alike = {model.name: model for model in self.kept.values() if model.own and model.own.file == file}
        return next(iter(alike.values())) if len(alike) == 1 else None


def kept_models(checkpoints: Iterable[Mapping[str, Any]]) -> dict[str, Model]:
    """Return the models that the checkpoints of a plan define, by name and by what the user wrote.

    Raises ValueError where a definition is not the one that the name's digest is of.
    """
    kept: dict[str, Model] = {}
    for checkpoint in checkpoints:
        if not (plain := checkpoint.get("definition")):
            continue
        model = from_plain(Model, plain)
        if wrong := [*misfits(model)]:
            raise ValueError(f"its definition of {checkpoint['model']} is none: {wrong[0]}")
        if not model.own or not checked_model(model).name == model.name == checkpoint["model"]:
            raise ValueError(f"{checkpoint['model']} is defined otherwise than the digest in its name says")
        kept |= {model.name: model, model.own.given_as: model}
    return kept
