"""The models of the workload: their architecture and how many processes hold them.

Source: the checkpoint workload of MLPerf Storage (architectures, parallelism and ZeRO stages of its four models).
"""

from __future__ import annotations

from dataclasses import dataclass

PARAMETERS_SHARDED = 3
"""The ZeRO stage from which on the parameters, too, are cut over the data-parallel ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """One transformer and how the workload cuts it.

    ``processes`` is the count of the full layout. ``zero_stage`` is DeepSpeed's: with 3, parameters and optimizer are
    both cut over the data-parallel ranks; with 1, only the optimizer.
    """

    name: str
    layers: int
    hidden: int
    feed_forward: int
    vocabulary: int
    heads: int
    key_value_heads: int
    tensor_parallel: int
    pipeline_parallel: int
    zero_stage: int
    processes: int

    @property
    def parameters(self) -> int:
        """Parameters as the workload counts them: 2VH + H + L(2H + H(H + 2 dim_kv) + HH + 3FH)."""
        h = self.hidden
        layer = 2 * h + h * self.attention_width + h * h + 3 * self.feed_forward * h
        return 2 * self.vocabulary * h + h + self.layers * layer

    @property
    def attention_width(self) -> int:
        """Columns of the joint query, key and value matrix: H + 2 dim_kv, with dim_kv = H // heads * KV heads."""
        return self.hidden + 2 * (self.hidden // self.heads * self.key_value_heads)

    @property
    def model_parallel(self) -> int:
        """Ranks over which one set of weights is cut: tensor x pipeline parallelism."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def data_parallel(self) -> int:
        """Data-parallel ranks of the full layout."""
        return self.processes // self.model_parallel

    @property
    def processes_per_copy(self) -> int:
        """Processes that hold one copy of the weights between them; with ZeRO-3 that is all of the full layout."""
        return self.processes if self.zero_stage == PARAMETERS_SHARDED else self.model_parallel


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="llama3-8b",
            layers=32,
            hidden=4096,
            feed_forward=14336,
            vocabulary=128256,
            heads=32,
            key_value_heads=8,
            tensor_parallel=1,
            pipeline_parallel=1,
            zero_stage=3,
            processes=8,
        ),
        Model(
            name="llama3-70b",
            layers=80,
            hidden=8192,
            feed_forward=28672,
            vocabulary=128256,
            heads=128,
            key_value_heads=8,
            tensor_parallel=8,
            pipeline_parallel=1,
            zero_stage=3,
            processes=64,
        ),
        Model(
            name="llama3-405b",
            layers=126,
            hidden=16384,
            feed_forward=53248,
            vocabulary=128256,
            heads=128,
            key_value_heads=8,
            tensor_parallel=8,
            pipeline_parallel=32,
            zero_stage=1,
            processes=512,
        ),
        Model(
            name="llama3-1t",
            layers=128,
            hidden=25872,
            feed_forward=98304,
            vocabulary=128256,
            heads=192,
            key_value_heads=32,
            tensor_parallel=8,
            pipeline_parallel=64,
            zero_stage=1,
            processes=1024,
        ),
    )
}
"""The models of the workload by name."""
