"""``verify`` finds any change in a run directory: a byte of a file, a name, or a file's type."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_ckpt.evidence.manifest import ATTESTATION, MANIFEST, write_manifest
from pytest_ckpt.evidence.signing import Signer
from pytest_ckpt.evidence.verification import verify_directory
from pytest_ckpt.support.errors import UsageError
from tests.support import synthetic_run
from tests.support.selection import examples

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
# Files that must agree with each other. Only a signature protects the output of launchers.
HELD = ("report.json", "certificate.html", "junit.xml", f"measurements/{synthetic_run.SUBJECT}.json")
EXAMPLES = settings(
    max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Directory of two runs: ``signed``, and ``plain`` without a signature."""
    home = tmp_path_factory.mktemp("runs")
    synthetic_run.write_run(home / "signed", signer=Signer(key=KEY), options={"ckpt_sign": "/keys/key.pem"})
    synthetic_run.write_run(home / "plain")
    return home


@pytest.fixture(params=[pytest.param("signed", marks=pytest.mark.thorough), "plain"])
def kind(request):
    return request.param


def broken(directory, kind):
    """Verify a directory; return the descriptions and details of all broken checks."""
    checks = verify_directory(directory, [KEY.public_key()] if kind == "signed" else None)
    return [d for c in checks if c.outcome == "broken" for d in (c.description, *c.details)]


def files_of(directory):
    return sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file())


@st.composite
def bytes_changed(draw, data):
    """Let Hypothesis choose a change of ``data``; return the changed bytes.

    The change flips a bit, inserts bytes, removes a byte, truncates the data, or sets all bytes to zero.
    """
    way = draw(st.sampled_from(["flip", "insert", "delete", "cut", "zero"] if data else ["insert"]))
    at = draw(st.integers(0, max(0, len(data) - 1)))
    if way == "flip":
        return data[:at] + bytes([data[at] ^ (1 << draw(st.integers(0, 7)))]) + data[at + 1 :]
    if way == "insert":
        return data[:at] + draw(st.binary(min_size=1, max_size=3)) + data[at:]
    if way == "delete":
        return data[:at] + data[at + 1 :]
    return data[:at] if way == "cut" else bytes(len(data))


@given(data=st.data())
@EXAMPLES
def test_other_bytes_in_any_file(finished, kind, tmp_path_factory, data):
    directory = shutil.copytree(finished / kind, tmp_path_factory.mktemp("changed") / "run")
    name = data.draw(st.sampled_from(files_of(directory)))
    before = (directory / name).read_bytes()
    (directory / name).write_bytes(data.draw(bytes_changed(before)))
    found = broken(directory, kind)
    assert found
    if name not in (MANIFEST, ATTESTATION):
        assert f"changed: {name}" in found
    (directory / name).write_bytes(before)
    assert not broken(directory, kind)
    shutil.rmtree(directory.parent)


def file_names(letters):
    names = st.text(letters, min_size=1, max_size=12).filter(lambda name: name not in (".", ".."))
    return names.filter(lambda name: "/" not in name and "\0" not in name)


NAMES = file_names(st.characters(codec="utf-8")) | st.sampled_from(
    [".hidden", "a\nb", "a\\b", MANIFEST, ATTESTATION, " "]
)


@given(data=st.data())
@EXAMPLES
def test_anything_that_was_added_removed_renamed_or_linked(finished, kind, tmp_path_factory, data):
    directory = shutil.copytree(finished / kind, tmp_path_factory.mktemp("changed") / "run")
    directories = [Path(), *(p.relative_to(directory) for p in directory.rglob("*") if p.is_dir())]
    inside = directory / data.draw(st.sampled_from(sorted(directories)))
    new = inside / data.draw(NAMES)
    there = directory / data.draw(st.sampled_from(files_of(directory)))
    ways = {
        "remove": there.unlink,
        "rename": lambda: there.rename(new),
        "link in its place": lambda: (
            there.rename(directory.parent / "aside"),
            there.symlink_to(directory.parent / "aside"),
        ),
        "a directory in its place": lambda: (there.unlink(), there.mkdir()),
        "a pipe in its place": lambda: (there.unlink(), os.mkfifo(there)),
        "add a file": lambda: new.write_bytes(b"later"),
        "add an empty file": new.touch,
        "add an empty directory": new.mkdir,
        "add directories": lambda: (new / "a" / "b").mkdir(parents=True),
        "add a link": lambda: new.symlink_to("/etc"),
        "add a link to nothing": lambda: new.symlink_to("nothing"),
        "add a pipe": lambda: os.mkfifo(new),
    }
    way = data.draw(st.sampled_from(sorted(ways)))
    if new.exists() or new.is_symlink():
        return
    ways[way]()
    if (directory / MANIFEST).is_file():
        assert broken(directory, kind), way
    else:
        with pytest.raises(UsageError, match=r"contains no manifest\.sha256"):
            verify_directory(directory, None)
    shutil.rmtree(directory.parent)


def test_a_file_of_another_kind_among_the_measurements_is_named(finished, kind, tmp_path):
    directory = shutil.copytree(finished / kind, tmp_path / "run")
    (directory / "measurements" / "other.json").write_text('{"what": "no measurement"}')
    found = broken(directory, kind)
    assert "added: measurements/other.json" in found
    assert "changed: measurements/other.json" in found


@given(data=st.data())
@EXAMPLES
def test_a_byte_that_was_changed_and_the_manifest_written_anew(finished, kind, tmp_path_factory, data):
    """A change is found even if the manifest was rewritten to match the changed file.

    In a signed run, this applies to every file. In an unsigned run, it applies to files that must agree with other
    files.
    """
    directory = shutil.copytree(finished / kind, tmp_path_factory.mktemp("changed") / "run")
    names = [n for n in files_of(directory) if n not in (MANIFEST, ATTESTATION)] if kind == "signed" else HELD
    name = data.draw(st.sampled_from(list(names)))
    before = (directory / name).read_bytes()
    after = data.draw(bytes_changed(before))
    (directory / name).write_bytes(after)
    write_manifest(directory)
    if kind == "signed" or name != HELD[-1] or not is_same_json(before, after):
        assert broken(directory, kind), name
    shutil.rmtree(directory.parent)


def is_same_json(one, other):
    """Return whether two JSON texts have equal values. White space is ignored."""
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False


def test_contents_of_two_files_in_each_others_place(finished, kind, tmp_path):
    directory = shutil.copytree(finished / kind, tmp_path / "run")
    one, other = directory / "plan.json", directory / "session.json"
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)
    assert {"changed: plan.json", "changed: session.json"} <= set(broken(directory, kind))


def test_a_run_leaves_no_empty_directory(finished):
    for directory in finished.rglob("*"):
        assert not directory.is_dir() or any(directory.iterdir()), directory


def test_an_empty_directory_is_named(finished, tmp_path):
    directory = shutil.copytree(finished / "plain", tmp_path / "run")
    (directory / "launches" / "2").mkdir()
    assert "added: launches/2/" in broken(directory, "plain")
