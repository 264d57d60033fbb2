"""Run directories with contents that no run writes. The fuzzers (``tests.support.fuzz``) found these cases."""

from __future__ import annotations

import json
import math
import os
import shutil

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence import manifest
from pytest_ckpt.evidence.manifest import MANIFEST, digests, write_manifest
from pytest_ckpt.evidence.verification import verify_directory
from tests.support import synthetic_run
from tests.support.deep_directories import create_too_deep
from tests.support.forging import edit
from tests.support.fuzz.values import get, places, set_value


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    directory = tmp_path_factory.mktemp("late") / "run"
    synthetic_run.write_run(directory, save=100.0)
    return directory


@pytest.fixture
def run(late, tmp_path):
    return shutil.copytree(late, tmp_path / "run")


@pytest.mark.parametrize("way", ["a pipe", "a link to what has no end"])
def test_a_manifest_that_has_no_end_is_not_waited_for(run, capsys, way):
    (run / MANIFEST).unlink()
    if way == "a pipe":
        os.mkfifo(run / MANIFEST)
    else:
        (run / MANIFEST).symlink_to("/dev/zero")
    assert main(["judge", str(run), "--json"]) == 1
    assert f"{MANIFEST} cannot be read: it is not a file" in capsys.readouterr().out
    assert main(["verify", str(run)]) == 4
    assert main(["diff", str(run), str(run)]) == 0


def test_a_file_beyond_any_size_is_named_and_not_read(run):
    with (run / "launches" / "1" / "rank-0.log").open("r+b") as file:
        file.truncate(1 << 40)
    assert digests(run)["launches/1/rank-0.log"] == ""
    assert main(["verify", str(run)]) == 1


@pytest.mark.parametrize("form", [(), ("--json",), ("--html=page.html",)], ids=["text", "JSON", "page"])
@pytest.mark.parametrize("field", ["total_bytes", "used_bytes", "free_bytes"])
def test_a_size_of_the_target_that_is_a_text_is_named(run, capsys, tmp_path, monkeypatch, field, form):
    """If a size of the target is a text, the directory is refused and the message names the field."""
    monkeypatch.chdir(tmp_path)
    sizes = {"total_bytes": 3, "used_bytes": 2, "free_bytes": 1, "free_files": None}
    edit(run / "report.json", lambda report: report["environment"]["target"].update(capacity=sizes))
    write_manifest(run)
    assert main(["judge", str(run), *form]) == 1
    edit(run / "report.json", lambda report: report["environment"]["target"]["capacity"].update({field: "much"}))
    write_manifest(run)
    assert main(["judge", str(run), *form]) == 4
    assert f"environment.target.capacity.{field}" in capsys.readouterr().err


def test_the_largest_files_of_an_oversized_directory_are_not_read(run, capsys, monkeypatch):
    """If the files of a directory have too many bytes in total, the largest files are not read.

    Without this limit, ten thousand large files would take hours.
    """
    monkeypatch.setattr(manifest, "_MAXIMUM_BYTES_IN_ALL", 1 << 20)
    for number in range(10):
        (run / "launches" / "1" / f"added-{number}.log").write_bytes(bytes((110 << 10) + number))
    unread = sorted(name for name, digest in digests(run).items() if not digest)
    assert unread
    assert unread == [f"launches/1/added-{number}.log" for number in range(10 - len(unread), 10)]
    (run / "launches" / "1" / "command").write_text("changed")
    assert main(["verify", str(run)]) == 1
    output = capsys.readouterr().out
    assert "changed: launches/1/command" in output
    assert "added: launches/1/added-9.log" in output


def test_directories_with_a_path_that_the_kernel_does_not_take_are_named(run, capsys):
    create_too_deep(run)
    assert main(["verify", str(run)]) == 1
    assert f"added: {'d' * 200}/" in capsys.readouterr().out


def test_a_failed_rehearsal_that_was_made_better_does_not_pass(run, capsys):
    """If the times of a failed rehearsal were improved by hand, ``judge`` exits with code 8, not 0.

    Passed and failed rehearsals have the same grade, so scripts rely on the exit code.
    """

    def faster(measurement):
        for operation in measurement["operations"]:
            if operation["kind"] == "save":
                share = 0.001 / operation["seconds"]
                operation["seconds"] *= share
                operation["rank_seconds"] = [s * share for s in operation["rank_seconds"]]
                operation["rank0_seconds"] *= share
                operation["phases"] = {name: s * share for name, s in operation["phases"].items()}

    assert main(["judge", str(run)]) == 1
    edit(run / "measurements" / f"{synthetic_run.SUBJECT}.json", faster)
    capsys.readouterr()
    assert main(["judge", str(run), "--json"]) == 8
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 8
    assert any("The directory is not as its run left it" in reason for reason in document["grade_reasons"])


def test_a_digit_far_behind_the_point_is_found_in_each_number(run):
    """A change of the last bit of any number is found, even if the manifest was rewritten to match the changed file."""
    file = run / "measurements" / f"{synthetic_run.SUBJECT}.json"
    before = file.read_bytes()
    document = json.loads(before)
    numbers = [place for place in places(document) if isinstance(get(document, place), float)]
    assert len(numbers) > 20
    for place in numbers:
        value = get(document, place)
        file.write_text(json.dumps(set_value(json.loads(before), place, math.nextafter(value, math.inf))))
        write_manifest(run)
        assert any(c.outcome == "broken" for c in verify_directory(run, None)), place
