"""Optimizers for ``--ckpt-optimizer``: the states per parameter that each optimizer stores, with sources. Pure.

Comments state the bytes per parameter in a checkpoint: the weights in bfloat16, and all states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_ckpt.config.hugging_face import Numbers
from pytest_ckpt.facts.models import PRECISION_BYTES, Precision
from pytest_ckpt.support.errors import nearest

_BYTES = "bytes:"
_MAXIMUM_BYTES = 34
_EXPECTED = "adamw, adamw-bf16, muon, adafactor or bytes:N is expected"
_STATES: tuple[tuple[int, Precision], ...] = ((4, "float32"), (2, "bfloat16"), (1, "float8"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """An optimizer: ``states`` lists the precision of each state that the optimizer stores per parameter.

    The parameters of embedding, head and last norm have the additional states ``of_ends``. ``whole_bytes`` is the size
    of one parameter with its states. If ``whole_bytes`` is not 0, the states are computed from this size.
    """

    states: tuple[Precision, ...] = ()
    of_ends: tuple[Precision, ...] = ()
    whole_bytes: int = 0

    def numbers(self, weights: Precision) -> Numbers:
        """Return {field of a model: value} for the fields that describe the optimizer.

        ``weights`` is the precision of the model's weights. Raises ValueError if ``whole_bytes`` leaves no bytes for
        states.
        """
        if not self.whole_bytes:
            return {"optimizer": list(self.states), "optimizer_of_ends": self.of_ends}
        left = self.whole_bytes - PRECISION_BYTES[weights]
        if left < 1:
            raise ValueError(
                f"{_BYTES}{self.whole_bytes} leaves no byte for the optimizer: the weights in {weights} have "
                f"{PRECISION_BYTES[weights]} of each parameter"
            )
        states: list[Precision] = []
        for size, precision in _STATES:
            states += [precision] * (left // size)
            left %= size
        return {"optimizer": states, "optimizer_of_ends": ()}


OPTIMIZERS: Mapping[str, Optimizer] = {
    # Weights and two moments in float32: 14 bytes. Rajbhandari et al., ZeRO, arXiv 1910.02054, section 3.1 (K = 12).
    "adamw": Optimizer(states=("float32", "float32", "float32")),
    # Weights in float32 and two moments in bfloat16: 10 bytes. DeepSeek-V3, arXiv 2412.19437, section 3.3.3.
    "adamw-bf16": Optimizer(states=("float32", "bfloat16", "bfloat16")),
    # Weights and one momentum in float32: 10 bytes. AdamW remains for embedding, head and norms: 14 bytes.
    # Liu et al., Muon is Scalable for LLM Training, arXiv 2502.16982, section 2. Second moments of the layers' norms
    # are under 0.1 % and not counted.
    "muon": Optimizer(states=("float32", "float32"), of_ends=("float32",)),
    # Weights in float32, and sums of rows and columns instead of moments: 6 bytes. The sums are under 0.1 % and not
    # counted. Shazeer and Stern, Adafactor, arXiv 1804.04235, section 4, without momentum.
    "adafactor": Optimizer(states=("float32",)),
}


def parse_optimizer(text: str) -> Optimizer:
    """Return the optimizer with this name, or an optimizer of N bytes per parameter for ``bytes:N``.

    Raises ValueError for any other text.
    """
    if text in OPTIMIZERS:
        return OPTIMIZERS[text]
    if not text.startswith(_BYTES):
        raise ValueError(f"no optimizer is called '{text:.40}'{nearest(text, OPTIMIZERS)}; {_EXPECTED}")
    number = text.removeprefix(_BYTES)
    if not (number.isascii() and number.isdigit()) or len(number) > 9 or not 2 <= int(number) <= _MAXIMUM_BYTES:
        raise ValueError(f"N in bytes:N is a whole number from 2 to {_MAXIMUM_BYTES}: all bytes of one parameter")
    return Optimizer(whole_bytes=int(number))
