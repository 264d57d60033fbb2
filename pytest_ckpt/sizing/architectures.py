"""The models of the workload: their architecture and how many processes hold them.

Source: the checkpoint workload of MLPerf Storage (architectures, parallelism and ZeRO stages of its four models).
"""

from __future__ import annotations

from pytest_ckpt.facts.models import Model

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
