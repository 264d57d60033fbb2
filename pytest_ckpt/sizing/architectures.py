"""The models of the workload: their architecture, number of processes, and published sizes.

Source: the checkpoint workload of MLPerf Storage, with its four models, their parallelism and their ZeRO stages.
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


# MLPerf Storage's "GB" are GiB, its "TB" are 1,000 GiB; the subset of 405B is an average over ranks.
CHECKPOINT_SIZES = {
    ("llama3-8b", "full"): "105 GB",
    ("llama3-8b", "subset"): "105 GB",
    ("llama3-70b", "full"): "912 GB",
    ("llama3-70b", "subset"): "114 GB",
    ("llama3-405b", "full"): "5.29 TB",
    ("llama3-405b", "subset"): "94 GB",
    ("llama3-1t", "full"): "15 TB",
    ("llama3-1t", "subset"): "144 GB",
}
