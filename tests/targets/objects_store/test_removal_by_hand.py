"""The printed commands for cleaning up a bucket work. Versions of objects are found, reported and removed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ckpt.facts.targets import Access, Names
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.objects.keys import prefix_of
from pytest_ckpt.targets.objects.store import open_store
from pytest_ckpt.targets.objects.target import target
from pytest_ckpt.targets.owner import OWNER
from tests.support.bucket import NAMES, PART, REF, Phases, create_target, save
from tests.support.targets.object_server import BUCKET, Fault, bucket_of, content_of, moto_server

VERSIONED = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


def command_in(sentence: str) -> str:
    """Return the command at the end of a message."""
    return sentence[sentence.index("python -m ") :]


def run(command: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )


def below(endpoint: str, prefix: str) -> list[str]:
    """Return the keys below a prefix in a server's bucket, and the keys of unfinished uploads below this prefix."""
    keys, uploads = content_of(endpoint)
    return [key for key in (*keys, *(key for key, _ in uploads)) if key.startswith(f"{prefix}/")]


def test_the_command_of_a_leftover_removes_its_objects_and_its_uploads(honest, monkeypatch):
    storage, area = create_target(honest, "left", "by hand")
    with contextlib.closing(open_store(area)) as store:
        save(store, bytes(5))[1].finish()
        store.begin(REF, Phases()).create("b.pt", 3 * PART).write_at(0, bytearray(PART))
    monkeypatch.setattr("pytest_ckpt.targets.objects.target.is_alive", lambda _owner: False)
    (left,) = storage.leftovers()
    assert len(below(honest, "by hand")) == 3
    done = run(left.command)
    assert (done.returncode, done.stderr) == (0, "")
    assert "removed 2 objects, 1 unfinished upload" in done.stdout
    assert below(honest, "by hand") == []


def test_the_remedy_for_objects_of_another_host_requires_that_its_run_has_ended(honest):
    storage, area = create_target(honest, "far", "far away")
    with contextlib.closing(bucket_of(honest)) as bucket:
        key = f"{prefix_of(area).below}{OWNER}"
        bucket.put(key, json.dumps({**json.loads(bucket.get(key)), "host": "h2"}).encode())
    (left,) = storage.leftovers()
    assert left.remedy.startswith(
        "this host cannot determine whether that run is still in progress, so check h2 first. "
    )
    assert left.remedy.endswith(f"If no run of pytest-ckpt is in progress there, remove it: {left.command}")


def test_the_command_of_one_upload_and_of_one_object_remove_these_alone(honest):
    storage, area = create_target(honest, "one", "by-one")
    with contextlib.closing(open_store(area)) as store:
        save(store, bytes(5))[1].finish()
        for _ in range(2):
            store.begin(REF, Phases()).create("strange.pt", 3 * PART).write_at(0, bytearray(PART))
    one, other = storage.clean(area, NAMES, 60.0)
    assert run(command_in(one)).returncode == 0
    assert len(below(honest, "by-one")) == 2
    assert run(command_in(other)).returncode == 0
    place = target(f"{BUCKET}/by-one", area.access)._place.area("one")
    assert run(place.removal_of_one(f"{place.below}OWNER.json", area.access)).returncode == 0
    assert below(honest, "by-one") == []


def test_a_place_that_no_run_made_is_not_removed(honest):
    done = run(f"python -m pytest_ckpt.targets.objects.remove s3://{BUCKET}/data --endpoint={honest}")
    assert done.returncode == 4
    assert "no part of it begins with pytest-ckpt-" in done.stderr


def test_a_store_that_refuses_the_removal_is_reported_without_a_traceback(server):
    server.faults.append(Fault(request="uploads", way="deny"))
    done = run(f"python -m pytest_ckpt.targets.objects.remove s3://{BUCKET}/pytest-ckpt-x --endpoint={server.endpoint}")
    assert done.returncode == 1
    assert "AccessDenied" in done.stderr
    assert "Traceback" not in done.stderr


# --- versions ---------------------------------------------------------------------------------------------------------


def test_a_bucket_whose_versioning_is_unreadable_needs_a_declaration(server):
    server.faults.append(Fault(request="versioning", way="deny"))
    access = Access(endpoints=(server.endpoint,))
    with pytest.raises(UsageError, match="s3:GetBucketVersioning, or set --ckpt-unversioned"):
        target(f"{BUCKET}/ckpt", access).check()
    target(f"{BUCKET}/ckpt", dataclasses.replace(access, unversioned=True)).check()


@pytest.fixture(scope="module")
def versioned():
    """Start a moto server (of another project) with a versioned bucket; return its endpoint."""
    with moto_server() as endpoint:
        with contextlib.closing(bucket_of(endpoint)) as bucket:
            bucket._wire.request("set versioning", "PUT", bucket.place.url, query=[("versioning", "")], body=VERSIONED)
        yield endpoint


def test_the_answer_of_a_bucket_about_versions_overrides_the_declaration(versioned):
    storage = target(f"{BUCKET}/trial", Access(endpoints=(versioned,), unversioned=True))
    with pytest.raises(UsageError, match="the bucket keeps versions"):
        storage.check()
    # If the client may not ask for the setting, the answer to a put shows that versions are kept.
    with pytest.raises(UsageError, match="the bucket keeps versions"):
        storage.create_area("told")


def test_versions_and_markers_that_stay_are_counted_and_the_command_removes_them(versioned, monkeypatch):
    monkeypatch.setattr("pytest_ckpt.targets.objects.target.try_all", lambda *_asked: None)
    storage, area = create_target(versioned, "versions", "versions")
    with contextlib.closing(open_store(area)) as store:
        save(store, bytes(5))[1].finish()
    (left,) = storage.clean(area, Names(files={"m": frozenset(("a.pt",))}), 60.0)
    assert "2 versions and 2 delete markers stay below" in left
    done = run(command_in(left))
    assert "4 versions and delete markers" in done.stdout
    with contextlib.closing(bucket_of(versioned)) as bucket:
        assert bucket.versions("versions/") == []


def test_an_object_from_before_versions_stays_below_its_marker_and_is_counted_too(monkeypatch):
    monkeypatch.setattr("pytest_ckpt.targets.objects.target.try_all", lambda *_asked: None)
    with moto_server() as endpoint:
        storage, area = create_target(endpoint, "turned-on", "versions")
        with contextlib.closing(open_store(area)) as store:
            save(store, bytes(5))[1].finish()
        with contextlib.closing(bucket_of(endpoint)) as bucket:
            bucket._wire.request("set versioning", "PUT", bucket.place.url, query=[("versioning", "")], body=VERSIONED)
            assert bucket.versions("versions/") == []
        (left,) = storage.clean(area, Names(files={"m": frozenset(("a.pt",))}), 60.0)
        assert "2 versions and 2 delete markers stay below" in left
        assert "4 versions and delete markers" in run(command_in(left)).stdout
        with contextlib.closing(bucket_of(endpoint)) as bucket:
            assert bucket.versions("versions/") == []
