"""``doctor`` reports too little shared memory, and whether the second client runs on a separate kernel."""

from __future__ import annotations

import dataclasses
import os

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.run import doctor
from pytest_ckpt.run.doctor import second_node, shared_memory

OF_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


@pytest.fixture
def settings():
    return resolve({"ckpt_cluster": "64"}, {})


def test_shared_memory_that_suffices(tmp_path):
    found = shared_memory(2, tmp_path)
    assert found.can
    assert f"free in {tmp_path}" in found.description


def test_too_little_shared_memory_is_reported_with_what_the_ranks_may_take(tmp_path, monkeypatch):
    small = os.statvfs_result((4096, 4096, 16384, 1024, 1024, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: small)
    found = shared_memory(8, tmp_path)
    assert (found.can, found.needed) == (False, False)
    assert found.description == f"4.19 MB free in {tmp_path}, and 8 ranks may take 8.39 MB"
    assert "medium: Memory" in found.remedy


def test_no_shared_memory_is_reported(tmp_path):
    found = shared_memory(8, tmp_path / "none")
    assert not found.can
    assert "cannot be written: the launcher's segments go to " in found.description
    assert found.remedy


def test_only_a_single_pod_gets_the_note_that_it_is_alone(settings):
    (found,) = second_node(settings, OF_POD)
    assert (found.can, found.needed) == (False, False)
    assert "this is a pod, and no other pod is named" in found.description
    assert "podAntiAffinity" in found.remedy
    assert list(second_node(settings, {})) == []
    assert list(second_node(dataclasses.replace(settings, second_mount="/mnt/other"), OF_POD)) == []


@pytest.mark.parametrize(
    ("elsewhere", "can", "needed", "expected_text"),
    [
        (True, True, False, "h2 has a separate kernel"),
        (False, False, True, "h2 has the kernel of this host"),
        (None, False, False, "h2 does not answer"),
    ],
)
def test_the_second_host_is_asked_for_its_kernel(settings, monkeypatch, elsewhere, can, needed, expected_text):
    asked = []
    monkeypatch.setattr(doctor, "is_elsewhere", lambda command, _ports: asked.append(command) or elsewhere)
    hosts = tuple(HostSlots(name=name, slots=2) for name in ("h1", "h2", "h3"))
    (found,) = second_node(dataclasses.replace(settings, hosts=hosts), {})
    assert (found.can, found.needed) == (can, needed)
    assert expected_text in found.description
    assert found.can or found.remedy
    assert "h2:1" in asked[0]
