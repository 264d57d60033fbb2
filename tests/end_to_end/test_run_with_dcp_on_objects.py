"""End-to-end runs of torch.distributed.checkpoint on an S3 bucket, with the libraries s3torchconnector and s3fs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.verification import verify_directory
from tests.support.actions import actions
from tests.support.bare_dcp import whole_tensors
from tests.support.end_to_end import REQUIRED, TINY, Run, Runner, temporary_runner
from tests.support.machine import patience
from tests.support.object_runs import started, subject, texts_of
from tests.support.targets.object_server import (
    ACCOUNT,
    CREDENTIALS,
    TARGET,
    Fault,
    Misbehaving,
    content_of,
    misbehaving_server,
    object_server,
)

_SECONDS = 300
_PROGRAM = """
import os, sys
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp

client, url, endpoint, scratch = sys.argv[1:]
torch.set_num_threads(1)
if client == "dcp-s3fs":
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader
    reader = FsspecReader(url, endpoint_url=endpoint, config_kwargs={"s3": {"addressing_style": "path"}})
else:
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client
    from s3torchconnector.dcp import S3StorageReader
    reader = S3StorageReader("us-east-1", url)
    reader.fs._client = S3Client("us-east-1", endpoint=endpoint, s3client_config=S3ClientConfig(force_path_style=True))
found = reader.read_metadata().state_dict_metadata
state = {name: torch.zeros(of.size, dtype=of.properties.dtype) for name, of in found.items()}
dcp.load(state, storage_reader=reader, no_dist=True)
for name, tensor in state.items():
    with open(os.path.join(scratch, name.replace("/", "+")), "wb") as out:
        out.write(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
assert not [name for name in sys.modules if name.split(".")[0] == "pytest_ckpt"]
"""


def load_bare(client: str, url: str, endpoint: str, scratch: Path, keys: Mapping[str, str]) -> dict[str, bytes]:
    """Load a checkpoint with a client library of S3, in one process and without pytest-ckpt.

    Return {name of a tensor: its bytes}.
    """
    words = [sys.executable, "-I", "-c", _PROGRAM, client, url, endpoint, str(scratch)]
    done = subprocess.run(
        words, env={**os.environ, **keys}, capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return {path.name.replace("+", "/"): path.read_bytes() for path in scratch.iterdir()}


THOROUGH = pytest.mark.thorough
CONNECTOR, FSSPEC = ENGINES = ("dcp-s3torchconnector", "dcp-s3fs")
SPEED = "--ckpt-gate-table=speed-only"
OBJECTS = 3
OPERATIONS = 2


class Saved(NamedTuple):
    """A run that kept its checkpoints, and the endpoint of the object store that contains them."""

    engine: str
    run: Run
    endpoint: str


@pytest.fixture(scope="module", params=ENGINES)
def saved(request: pytest.FixtureRequest, create_home: Callable[[str], Path]) -> Iterator[Saved]:
    with object_server() as endpoint, temporary_runner(create_home(request.param)) as runner:
        options = (f"--ckpt-endpoint={endpoint}", f"--ckpt-engine={request.param}", SPEED, "--ckpt-keep-files")
        yield Saved(request.param, started(runner, *options).finish(), endpoint)


@THOROUGH
def test_a_run_meets_what_is_required_and_every_byte_of_every_load_is_compared(saved: Saved) -> None:
    run = saved.run
    assert run.code == 0, run.text
    outcomes = run.outcomes(subject(run))
    assert {name: outcomes[name] for name in REQUIRED} == dict.fromkeys(REQUIRED, "met")
    measured = run.measurement(subject(run))
    assert measured["integrity"]["bytes_checked"] == OPERATIONS * measured["bytes"] > 0
    assert measured["cache"]["is_declared_cold"]
    assert "Traceback" not in run.text


@THOROUGH
def test_the_library_commits_and_its_calls_are_reported_separately(saved: Saved) -> None:
    run = saved.run
    measured = run.measurement(subject(run))
    durability = measured["durability"]
    assert (durability["observed"], durability["commit_methods"]) == ("store", ["copy"])
    assert durability["acknowledged"] == ["only size and ETag"]
    assert durability["files"] == durability["files_synced"] == OPERATIONS * OBJECTS
    assert (durability["commits"], durability["saves"]) == (OPERATIONS, OPERATIONS)
    assert "committed by copy" in run.verdict("DURABLE-CALLS", subject(run))["because"]
    facts = measured["engine_facts"]
    assert facts["commit"].startswith("the library's and not ours")
    assert facts["added"].startswith("HEAD of each object after the library's own calls")
    page = (run.report / "certificate.html").read_text()
    assert "the library&#39;s and not ours" in page
    assert "Requests: s3" in page
    # Our own marker is not added to the library's files.
    keys, uploads = content_of(saved.endpoint)
    assert {key.rpartition("/")[2] for key in keys if "checkpoint-" in key} == {
        "__0_0.distcp", "__1_0.distcp", ".metadata",
    }  # fmt: skip
    assert uploads == []
    (planned,) = run.document["checkpoints"]
    assert (planned["engine"]["commits"], planned["engine"]["files"]["commit"]) == ("engine", ".metadata")


@THOROUGH
def test_the_library_alone_loads_in_another_process_what_was_saved(saved: Saved, tmp_path: Path) -> None:
    directory = next(k.rpartition("/")[0] for k in content_of(saved.endpoint)[0] if "checkpoint-0002/" in k)
    found = load_bare(saved.engine, f"s3://test/{directory}", saved.endpoint, tmp_path, CREDENTIALS)
    run = saved.run
    assert found == whole_tensors(run.measurement(subject(run)), run.document["run"]["seed"], checkpoint=2)


@THOROUGH
def test_the_report_verifies_and_memory_use_is_as_declared(saved: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    assert not [s for s in saved.run.document["disclosures"] if "more memory" in s]
    checks = verify_directory(saved.run.report, None)
    found = {check.name: check.outcome for check in checks if check.outcome != "not checked"}
    assert set(found.values()) == {"holds"}, found
    assert main(["verify", str(saved.run.report)]) == 0
    assert "UNCHANGED" in capsys.readouterr().out


# --- a store that misbehaves ------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with misbehaving_server() as found:
        yield found


def run_on(server: Misbehaving, create_home: Callable[[str], Path], engine: str, *options: str) -> Run:
    with temporary_runner(create_home("dcp-objects")) as runner:
        words = (f"--ckpt-endpoint={server.endpoint}", f"--ckpt-engine={engine}", SPEED, *options)
        return started(runner, *words).finish()


@THOROUGH
@pytest.mark.parametrize("strategy", ["sync", "async"])
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_left_and_the_server_received_the_traced_requests(
    server: Misbehaving, create_home: Callable[[str], Path], engine: str, strategy: str
) -> None:
    run = run_on(server, create_home, engine, f"--ckpt-strategy={strategy}")
    assert run.code == 0, run.text
    for name in ("LOAD", "INTEGRITY", "COLD", "DURABLE-CALLS"):
        assert run.verdict(name, subject(run))["outcome"] == "met"
    assert content_of(server.behind) == ([], [])
    # The connector sends even .metadata in parts; s3fs sends small files in one request. Our own test of permissions
    # begins one upload.
    parts, whole = server.seen["begin"] - 1, server.seen["put"]
    assert (parts, whole >= OPERATIONS) == ((OPERATIONS * OBJECTS, True) if engine == CONNECTOR else (0, True))
    assert (whole >= OPERATIONS * OBJECTS) == (engine == FSSPEC)


@THOROUGH
@pytest.mark.parametrize(("engine", "request_"), [(CONNECTOR, "begin"), (FSSPEC, "put")])
@pytest.mark.parametrize(("way", "expected_text"), [("deny", "AccessDenied"), ("expired", "ExpiredToken")])
def test_error_messages_of_a_client_contain_no_keys(
    server: Misbehaving, create_home: Callable[[str], Path], engine: str, request_: str, way: str, expected_text: str
) -> None:
    server.faults.append(Fault(request=request_, way=way, key="__1_0.distcp"))  # type: ignore[arg-type]
    run = run_on(server, create_home, engine)
    assert run.code == 1, run.text
    failure = run.measurement(subject(run))["failure"]
    assert (failure["rank"], failure["file"], failure["phase"]) == (1, "__1_0.distcp", "write")
    assert f"{engine.removeprefix('dcp-')} " in failure["message"]
    assert expected_text in failure["message"]
    assert "Traceback" not in run.text
    texts = {**texts_of(run.report), "the terminal": run.text}
    assert not [n for n, t in texts.items() for value in (*CREDENTIALS.values(), ACCOUNT) if value in t]
    assert content_of(server.behind) == ([], [])


@THOROUGH
@pytest.mark.parametrize(("engine", "request_"), [(CONNECTOR, "end"), (FSSPEC, "put")])
def test_an_object_that_was_acknowledged_and_is_gone_fails_the_save(
    server: Misbehaving, create_home: Callable[[str], Path], engine: str, request_: str
) -> None:
    server.faults.append(Fault(request=request_, way="lose", key="__1_0.distcp", times=1))  # type: ignore[arg-type]
    run = run_on(server, create_home, engine)
    assert run.code == 1, run.text
    failure = run.measurement(subject(run))["failure"]
    assert (failure["rank"], failure["file"], failure["errno"]) == (1, "__1_0.distcp", "ENOENT")


@THOROUGH
@pytest.mark.parametrize(("engine", "request_"), [(CONNECTOR, "part"), (FSSPEC, "put")])
def test_a_store_that_is_silent_in_a_save_is_named_and_nothing_is_left(
    server: Misbehaving, create_home: Callable[[str], Path], engine: str, request_: str
) -> None:
    """If the object store stops answering during a save, the watchdog ends the waiting rank and names its file.

    The clean-up aborts the upload of this rank. Without the watchdog, the client library would wait for ever.
    """
    server.faults.append(Fault(request=request_, way="silent", key="__1_0.distcp"))  # type: ignore[arg-type]
    run = run_on(server, create_home, engine, f"--ckpt-io-timeout={patience(5):.0f}s")
    assert run.code == 1, run.text
    failure = run.measurement(subject(run))["failure"]
    assert (failure["kind"], failure["rank"], failure["phase"]) == ("hung", 1, "write")
    assert failure["file"] == "__1_0.distcp"
    assert content_of(server.behind) == ([], [])


@THOROUGH
@pytest.mark.parametrize("engine", ENGINES)
def test_a_byte_that_a_store_flips_fails_integrity(
    server: Misbehaving, create_home: Callable[[str], Path], engine: str
) -> None:
    server.faults.append(Fault(request="get", way="flip", key="__1_0.distcp", times=1))
    run = run_on(server, create_home, engine)
    assert run.code == 1, run.text
    assert run.verdict("INTEGRITY", subject(run))["outcome"] == "failed"
    fault = run.measurement(subject(run))["integrity"]["faults"][0]
    assert (fault["kind"], fault["rank"], fault["file"]) == ("flipped", 1, "__1_0.distcp")


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("options", "expected_text"), [
    (("--ckpt-strategy=tiered:local-tier=/tmp",), "saves to a directory first"),
    (("--ckpt-strategy=incremental:changed=10%",), "saves some checkpoints as pages"),
    (("--ckpt-strategy=compressed",), "--ckpt-strategy compressed"),
    ((actions(fault_command="true", repair_command="true"),), "save and load only together"),
])  # fmt: skip
def test_unsupported_options_of_the_library_are_refused(run_pytest, monkeypatch, engine, options, expected_text):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    words = (f"--ckpt-target={TARGET}", "--ckpt-endpoint=embedded", *TINY, f"--ckpt-engine={engine}", *options)
    result = run_pytest(*words)
    assert result.ret == 4, result.stdout.str()
    assert expected_text in " ".join(result.stderr.str().split())
    assert "Remedy" in result.stderr.str() or "Take" in result.stderr.str()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_file_system_is_refused_and_a_bucket_is_named_as_the_remedy(run_pytest, pytester, engine):
    result = run_pytest(f"--ckpt-target={pytester.path}", *TINY, f"--ckpt-engine={engine}")
    assert result.ret == 4
    text = " ".join(result.stderr.str().split())
    assert f"--ckpt-engine {engine} needs a bucket of S3" in text
    assert "--ckpt-target=s3://bucket/prefix" in text


def test_certificates_that_the_connector_cannot_be_told_of_are_refused(run_pytest, monkeypatch):
    monkeypatch.setenv("AWS_CA_BUNDLE", "/etc/ssl/any.pem")
    words = (f"--ckpt-target={TARGET}", "--ckpt-endpoint=https://127.0.0.1:1")
    result = run_pytest(*words, *TINY, f"--ckpt-engine={CONNECTOR}")
    assert result.ret == 4
    text = " ".join(result.stderr.str().split())
    assert "verifies TLS only by the certificates of the system" in text
    assert "update-ca-certificates" in text


@pytest.mark.parametrize(
    ("engine", "package"), [(CONNECTOR, "s3torchconnector"), (CONNECTOR, "tenacity"), (FSSPEC, "s3fs")]
)
def test_a_client_that_is_not_installed_is_refused_with_its_extra(
    runner: Runner, create_home: Callable[[str], Path], engine: str, package: str
) -> None:
    hidden = create_home("hidden")
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as u\n_find = u.find_spec\n"
        f"u.find_spec = lambda name, *words: None if name == {package!r} else _find(name, *words)\n"
    )
    options = ("--ckpt-endpoint=embedded", f"--ckpt-engine={engine}")
    run = started(runner, *options, environment={"PYTHONPATH": str(hidden)}).finish()
    assert run.code == 4, run.text
    text = " ".join(run.text.split())
    assert f"needs the package {package}, which is not installed" in text
    assert f"pip install 'pytest-ckpt[{engine.removeprefix('dcp-')}]'" in text
