"""Files with only the weights: every byte is written once, and each replica reads every byte once."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.reading import BYTES_A_PARAMETER, MAXIMUM_FILE_BYTES, weights_of

PAGE = 4096


def open_layout(model: str, processes: int, scale: float):
    return layout(model, mode="open", processes=processes, scale=scale)


@given(
    st.sampled_from([("llama3-8b", 1), ("llama3-8b", 6), ("llama3-8b", 64), ("llama3-70b", 8), ("llama3-70b", 64)]),
    st.integers(1, 64),
    st.floats(1e-4, 1.0),
)
def test_each_replica_reads_all_of_every_file_once(shape, readers, scale) -> None:
    model, processes = shape
    weights = weights_of(open_layout(model, processes, scale), readers)
    written = [file for rank in range(processes) for file in weights.written_by(rank)]
    assert sorted(written) == list(range(len(weights.names))) == list(range(len(weights.file_pages)))
    assert weights.readers * weights.replicas <= processes
    for replica in range(weights.replicas):
        spans: dict[int, list[tuple[int, int]]] = {}
        for part in range(weights.readers):
            for file, start, stop in weights.read_by(replica * weights.readers + part):
                spans.setdefault(file, []).append((start, stop))
        for file, parts in spans.items():
            assert parts[0][0] == 0
            assert parts[-1][1] == weights.file_bytes(file)
            assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))
        assert len(spans) == len(weights.file_pages)
    assert all(not weights.read_by(rank) for rank in range(weights.readers * weights.replicas, processes))


def test_at_full_size_there_are_two_bytes_a_parameter_in_files_of_5_gb_at_most() -> None:
    whole = layout("llama3-405b", mode="full", processes=512, scale=1.0)
    weights = weights_of(whole, 8)
    assert weights.full_bytes == BYTES_A_PARAMETER * MODELS["llama3-405b"].parameters
    assert abs(weights.bytes - weights.full_bytes) <= PAGE
    assert max(map(weights.file_bytes, range(len(weights.names)))) <= MAXIMUM_FILE_BYTES + PAGE
    assert weights.names[0] == f"weights-00001-of-{len(weights.names):05}.bin"
    assert weights.replicas == 64


def test_a_subset_of_ranks_has_its_share_of_the_weights() -> None:
    weights = weights_of(layout("llama3-405b", mode="subset", processes=8, scale=1.0), 8)
    assert abs(weights.bytes - weights.full_bytes * 8 / 512) <= PAGE
