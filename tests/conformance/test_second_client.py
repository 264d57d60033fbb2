"""The second client: a process that executes requests and reports errors.

Every wait for this process has a time limit.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ckpt.conformance.client import AGENT, Client
from pytest_ckpt.conformance.context import NotRun
from pytest_ckpt.wire.frames import SECRET


@pytest.fixture
def client():
    made = Client()
    yield made
    made.close()


def test_the_second_client_reads_writes_renames_and_lists(client, tmp_path):
    directory, data = f"{tmp_path}/directory", os.urandom(3 << 20)
    client.request("make_directory", directory)
    client.write(f"{directory}/a", data)
    client.write(f"{directory}/a", b"more", append=True, sync=True)
    assert (tmp_path / "directory/a").read_bytes() == client.read(f"{directory}/a") == data + b"more"
    client.request("rename", f"{directory}/a", to=f"{directory}/b")
    assert client.request("names", directory) == ["b"]
    assert client.request("stat", f"{directory}/b")["size"] == len(data) + 4
    client.request("remove", f"{directory}/b")
    assert not client.request("exists", f"{directory}/b")


def test_a_file_stays_open_between_requests(client, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    opened = client.request("open_file", str(path), flags=os.O_RDWR)
    path.unlink()
    client.request("write_at", str(path), descriptor=opened, data="eHg=", offset=2)
    assert client.request("read_at", str(path), descriptor=opened, length=100, offset=1) == "MXh4NDU2Nzg5"
    client.request("close_file", str(path), descriptor=opened)
    with pytest.raises(OSError, match="Bad file descriptor"):
        client.request("read_at", str(path), descriptor=opened, length=1, offset=0)


def test_a_lock_is_held_by_a_child_that_can_be_killed(client, tmp_path):
    (tmp_path / "file").touch()
    path = str(tmp_path / "file")
    holder = client.request("hold_lock", path)
    opened = client.request("open_file", path, flags=os.O_RDWR)
    assert holder["held"]
    assert not client.request("hold_lock", path)["held"]
    assert not client.request("lock", path, descriptor=opened)
    client.request("kill", path, process=holder["process"])
    assert client.request("lock", path, descriptor=opened)
    client.request("unlock", path, descriptor=opened)
    with pytest.raises(FileNotFoundError):
        client.request("hold_lock", f"{path}-that-is-not-there")


def test_a_failing_call_brings_its_errno(client, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        client.read(f"{tmp_path}/none")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, f"{tmp_path}/none")


def test_a_fault_of_the_agent_is_no_fault_of_the_storage(client, tmp_path):
    with pytest.raises(RuntimeError, match="no attribute 'levitate'"):
        client.request("levitate", str(tmp_path))


def test_each_request_is_reported_before_it_is_sent(tmp_path):
    listed = []
    client = Client(report_call=lambda call, path: listed.append((call, path)))
    client.request("exists", str(tmp_path))
    client.close()
    assert listed == [("the second client: exists", str(tmp_path))]


def test_a_request_that_takes_too_long_is_named_and_its_late_answer_is_not_taken_for_another(client, tmp_path):
    os.mkfifo(tmp_path / "blocks")
    with pytest.raises(TimeoutError, match=r"has not ended 'read' within 0.05 s; the call may hang") as caught:
        client.request("read", str(tmp_path / "blocks"), patience=0.05)
    assert caught.value.filename == str(tmp_path / "blocks")
    os.close(os.open(tmp_path / "blocks", os.O_WRONLY))  # Now the agent's open returns, and the agent answers.
    assert client.request("names", str(tmp_path)) == ["blocks"]


def test_an_agent_that_ends_is_reported_as_gone(tmp_path):
    code = "from pytest_ckpt.wire.caller import call; c = call(); c.send('ready'); c.receive(); raise SystemExit(3)"
    for words in ("print('hello'); raise SystemExit(3)", code):
        client = Client([sys.executable, "-c", words])
        with pytest.raises(NotRun, match=r"has ended \(exit code 3\) in exists of .*"):
            client.request("exists", str(tmp_path))
        client.close()


def test_requests_of_any_size_arrive_complete(client, tmp_path):
    """A request with 5,000 names of 200 characters arrives complete. Checks often send over 1,000 names."""
    names = [f"{number:0200d}" for number in range(5000)]
    seen = client.request("wait_until", str(tmp_path), query="names", wanted=names, seconds=0)
    assert not seen["agreed"]


def test_the_secret_of_a_client_is_not_among_the_words_of_any_process(client, tmp_path):
    assert client.request("exists", str(tmp_path))
    secret = client._listener.environment[SECRET]
    words = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # A process of another test may end during this loop.
            with contextlib.suppress(OSError):
                words.append((entry / "cmdline").read_bytes())
    assert not any(secret.encode() in of for of in words)


def test_an_agent_that_cannot_be_started_is_a_reason_not_to_run(tmp_path):
    with pytest.raises(NotRun, match="cannot be started: /no/such/launcher: No such file"):
        Client(["/no/such/launcher"]).request("exists", str(tmp_path))


@pytest.mark.parametrize("then", ["waits for a request", "blocks in a call"])
def test_the_agent_ends_with_the_process_that_started_it(tmp_path, then):
    os.mkfifo(tmp_path / "blocks")
    starter = (
        "import json, os, subprocess, sys\n"
        "from pytest_ckpt.wire.listener import Listener\n"
        "listener = Listener(only_this_host=True)\n"
        f"agent = subprocess.Popen({list(AGENT)!r}, env=os.environ | listener.environment)\n"
        "while not (came := listener.take_messages()): pass\n"
        "for request in json.loads(sys.argv[2]): came[0][0].send(request)\n"
        "while not (came := listener.take_messages()): pass\n"
        "print(json.dumps(came[0][1]), flush=True)\n"
        "open(sys.argv[1]).read()\n"
    )
    os.mkfifo(tmp_path / "end")
    requests = [{"id": 1, "action": "exists", "path": "/", "details": {}}]
    if then == "blocks in a call":
        requests.append({"id": 2, "action": "read", "path": str(tmp_path / "blocks"), "details": {}})
    command = [sys.executable, "-c", starter, str(tmp_path / "end"), json.dumps(requests)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as starting:
        assert json.loads(starting.stdout.readline()) == {"id": 1, "result": True}
        (tmp_path / "end").write_text("now")
        # Both processes hold this pipe as their output, so the read returns when both have ended.
        assert starting.stdout.read() == ""


def test_the_agent_needs_the_standard_library_alone(tmp_path):
    command = [sys.executable, "-I", "-S", "-c",
               f"import sys; sys.path.insert(0, {os.environ.get('PYTHONPATH', str(Path.cwd()))!r}); "
               "from pytest_ckpt.conformance.agent import main; main()"]  # fmt: skip
    client = Client(command)
    assert client.request("exists", str(tmp_path))
    client.close()
