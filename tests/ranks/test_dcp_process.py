"""Messages between a rank and the torch process that saves for the rank. Unsuitable requests are refused early."""

from __future__ import annotations

import errno
import pickle
import zlib
from types import SimpleNamespace

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.strategies import STRATEGY_OF
from pytest_ckpt.facts.subject import Subject
from pytest_ckpt.support.errors import UsageError
from tests.support.synthetic_measurement import LIMITS

FILES = ("__0_0.distcp", ".metadata", ".metadata.tmp")


@pytest.fixture(scope="module")
def process():
    # Imported here, because every worker collects this module and torch takes seconds.
    from pytest_ckpt.ranks.engines import dcp_process  # noqa: PLC0415

    return dcp_process


@pytest.fixture
def notes(process):
    return process.Notes(FILES)


@pytest.fixture
def watch(process, notes):
    return process._NotedFiles(notes, FILES[1:])


def test_bytes_phases_and_the_checksum_cross(process, notes, watch, tmp_path):
    with watch.create_stream(tmp_path / FILES[0], "wb") as file:
        assert notes.phase_of(process._PHASE) == "write"
        assert notes.name_of(process._FILE) == FILES[0]
        assert notes.values[process._WORKS]
        file.write(b"x" * 100_000)
    assert notes.phase_of(process._PHASE) == ""
    assert not notes.values[process._WORKS]
    assert int(notes.values[process._BYTES]) == 100_000
    assert set(notes.seconds) == {"open", "write"}
    assert notes.checksum is None
    with watch.create_stream(tmp_path / FILES[2], "wb") as file:
        file.write(b"places")
    assert notes.checksum == zlib.crc32(b"places")
    notes.clear()
    assert (notes.seconds, notes.checksum) == ({}, None)


def test_the_first_error_crosses_with_its_phase_and_file(process, notes, watch, tmp_path):
    with pytest.raises(OSError, match="No space"), watch.create_stream("/dev/full", "wb") as file:
        file.write(b"x" * 1_000_000)
    assert int(notes.values[process._ERRNO]) == errno.ENOSPC
    assert notes.phase_of(process._FAILED_PHASE) == "write"
    with pytest.raises(OSError, match="No such file"), watch.create_stream(tmp_path / "no" / FILES[0], "wb"):
        pass
    assert notes.phase_of(process._FAILED_PHASE) == "write", "the first one counts"


def test_a_writer_that_was_sent_watches_its_calls(process, notes, tmp_path):
    writer = process._ProcessWriter(str(tmp_path), 2, notes, FILES[1:])
    state = writer.__getstate__()
    assert "fs" not in state
    state["_notes"] = None
    assert pickle.dumps(state)
    sent = process._ProcessWriter.__new__(process._ProcessWriter)
    sent.__setstate__(writer.__getstate__())
    assert type(sent.fs).__name__ == "_NotedFiles"
    assert sent.thread_count == 2


def test_a_host_with_too_little_shared_memory_is_named_and_it_is_no_error_of_the_storage(process, monkeypatch):
    group = SimpleNamespace(host="n1", host_sum=lambda count: 4 * count)
    monkeypatch.setattr(process, "shared_memory_free_bytes", lambda: 64 << 20)
    process.SavingProcess.check_shared_memory(group, 16 << 20)
    with pytest.raises(RuntimeError, match=r"/dev/shm of host n1 has 67\.1 MB free, and .* need 71\.3 MB"):
        process.SavingProcess.check_shared_memory(group, 17 << 20)


@pytest.mark.parametrize("engine", ["stream", "torch", "megatron", "safetensors"])
def test_an_engine_whose_library_has_no_such_process_is_refused(engine):
    with pytest.raises(UsageError) as refused:
        resolve({"ckpt_engine": engine, "ckpt_strategy": "async:process"}, {})
    assert "has no process that saves" in refused.value.what
    assert "--ckpt-engine=dcp" in refused.value.remedy


def test_async_process_takes_the_parameters_of_async():
    settings = resolve({"ckpt_engine": "dcp", "ckpt_strategy": "async:process:step=1s,async"}, {})
    assert [strategy.name for strategy in settings.strategies] == ["async:process", "async"]
    assert settings.step_seconds == 1.0


def test_the_storage_has_as_long_as_for_another_save_in_the_background():
    by_thread, by_process = (LIMITS.save_seconds(STRATEGY_OF[name]) for name in ("async", "async:process"))
    assert by_process == by_thread


def test_its_subject_has_a_name_for_files_without_a_colon():
    subject = Subject(model="llama3-8b", mode="full", engine="dcp", strategy="async:process")
    assert str(subject) == "llama3-8b-full/dcp/async:process"
    assert Subject.from_text(str(subject)) == subject
    assert subject.slug == "llama3-8b-full+dcp+async-process"
