"""Layouts are kept between runs, and never believed when their file is not what was written."""

from __future__ import annotations

import importlib.metadata

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.serialization import config

from pytest_ckpt.launching import layout_cache as containers
from pytest_ckpt.ranks.engines.stream import lay_out as maker
from pytest_ckpt.sizing.models import layout

LAYOUTS = [layout("llama3-8b", mode="open", processes=2, scale=1e-4)]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def made(monkeypatch):
    """How many containers were laid out anew."""
    counts = []
    make = containers._made

    def counted(tensors):
        counts.append(len(tensors))
        return make(tensors)

    monkeypatch.setattr(containers, "_made", counted)
    return counts


def test_what_was_laid_out_once_is_not_laid_out_again(home, made):
    first = containers.lay_out(LAYOUTS)
    assert containers.lay_out(LAYOUTS) == first
    assert made == [len(first)]
    assert len(list(home.rglob("*.json"))) == len(first)


@pytest.mark.parametrize("damage", [
    lambda text: text[:-10],
    lambda text: text.replace('"bytes": ', '"bytes": 1', 1),
    lambda text: "",
    lambda text: text.replace("key", "kex", 1),
])  # fmt: skip
def test_a_file_that_was_changed_is_not_believed(home, made, damage):
    first = containers.lay_out(LAYOUTS)
    for file in home.rglob("*.json"):
        before = file.read_text()
        file.write_text(damage(before))
        assert file.read_text() != before
    assert containers.lay_out(LAYOUTS) == first
    assert made == [len(first), len(first)]


def test_another_torch_lays_out_for_itself(home, made, monkeypatch):
    containers.lay_out(LAYOUTS)
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "99.0")
    containers.lay_out(LAYOUTS)
    assert len(made) == 2


def test_a_home_that_takes_no_files_costs_only_time(tmp_path, made, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    assert containers.lay_out(LAYOUTS) == containers.lay_out(LAYOUTS)
    assert len(made) == 2


def test_the_offsets_are_those_that_torch_load_would_read_at(tmp_path):
    (file,) = {f.tensors: f for rank in LAYOUTS[0].ranks() for f in rank.files if "optim" in f.name}.values()
    alignment = config.save.storage_alignment
    found = maker.lay_out(file.tensors, str(tmp_path))
    assert config.save.storage_alignment == alignment
    state = {t.name: torch.empty(t.elements, dtype=getattr(torch, t.dtype)) for t in file.tensors}
    with config.patch("save.storage_alignment", maker.ALIGNMENT_BYTES):
        torch.save(state, tmp_path / "real.pt")
    with FakeTensorMode():
        read = torch.load(tmp_path / "real.pt", weights_only=True)
    assert [r.offset for r in found.records] == [
        read[t.name].untyped_storage()._checkpoint_offset for t in file.tensors
    ]
