"""What others have printed about these checkpoints, to be shown beside our own figures."""

from __future__ import annotations

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
