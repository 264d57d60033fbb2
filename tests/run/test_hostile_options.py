"""Bad values of options cause no traceback and no endless read. The error names the option and a remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.options import option_of
from pytest_ckpt.run.open import open_run
from pytest_ckpt.support.errors import UsageError

PATHS = (
    "target", "gate_table", "system", "waivers", "report", "history", "second_mount", "small_volume", "sign", "config",
    "local_tier", "ca_bundle", "actions",
)  # fmt: skip
READ = ("gate_table", "system", "waivers", "config", "sign", "hosts", "ca_bundle", "actions")
# Without these additional options, the option itself is refused before its value is read.
WITH = {
    "local_tier": {"ckpt_strategy": "tiered"},
    "ca_bundle": {"ckpt_target": "s3://bucket/prefix", "ckpt_endpoint": "https://127.0.0.1:9"},
}
TOML = ("gate_table", "system", "waivers", "config", "actions")

Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """Return a function that opens a run with a bad option and returns the error message.

    The function checks that no file was created.
    """
    target = tmp_path / "target"
    target.mkdir()

    def open_with(option: str, value: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        fields = {
            "ckpt_target": str(target), "ckpt_cluster": "64", "ckpt_profile": "smoke", "ckpt_model": "llama3-8b",
            "ckpt_mode": "open", "ckpt_ranks": "2", "ckpt_report": str(tmp_path / "report"),
        }  # fmt: skip
        with pytest.raises(UsageError) as error:
            open_run(resolve(fields | WITH.get(option, {}) | {f"ckpt_{option}": value}, {}), ["pytest"])
        assert sorted(tmp_path.rglob("*")) == before
        assert error.value.remedy
        assert option_of(option).flag in error.value.what
        return error.value.what

    return open_with


@pytest.mark.parametrize("option", PATHS)
def test_a_user_that_does_not_exist(option: str, refused: Refused) -> None:
    assert "no user 'nosuchuser'" in refused(option, "~nosuchuser/x.toml")


@pytest.mark.parametrize("option", PATHS)
def test_a_name_that_no_file_system_takes(option: str, refused: Refused) -> None:
    assert "255 bytes" in refused(option, f"/tmp/{'n' * 300}.toml")


@pytest.mark.parametrize("option", [*PATHS, "hosts"])
def test_a_nul_byte(option: str, refused: Refused) -> None:
    assert "NUL" in refused(option, "/tmp/a\0b.toml")


@pytest.mark.parametrize("option", ["target", "report", "history", "second_mount", "local_tier", "ca_bundle"])
def test_a_link_to_itself(option: str, refused: Refused, tmp_path: Path) -> None:
    link = tmp_path / "circle"
    link.symlink_to(link)
    refused(option, str(link))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOTCONN], ids=errno.errorcode.get)
@pytest.mark.parametrize("option", ["report", "history", "local_tier", "second_mount", "small_volume"])
@pytest.mark.parametrize("below", ["", "/new"])
def test_a_directory_on_a_mount_that_answers_with_an_error(
    option: str,
    number: int,
    below: str,
    refused: Refused,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dead = tmp_path_factory.mktemp("dead")
    for name in ("stat", "lstat", "statvfs", "listdir", "scandir", "mkdir", "access"):
        monkeypatch.setattr(os, name, failing(getattr(os, name), dead, OSError(number, os.strerror(number))))
    assert os.strerror(number) in refused(option, f"{dead}{below}")


def failing(call: Callable[..., object], directory: Path, error: OSError) -> Callable[..., object]:
    """Return a fake system call that raises ``error`` for a directory and its contents.

    If ``call`` is ``access``, the fake returns False instead. For other paths, the fake makes the real call.
    """

    def answer(path: object, *arguments: object, **named: object) -> object:
        if isinstance(path, str | os.PathLike) and directory in (Path(path), *Path(path).parents):
            if call.__name__ == "access":
                return False
            raise error
        return call(path, *arguments, **named)

    return answer


@pytest.mark.parametrize("option", READ)
@pytest.mark.parametrize("what", ["a pipe", "a device", "a directory", "a huge file"])
def test_pipes_devices_directories_and_huge_files_are_not_read(
    option: str, what: str, refused: Refused, tmp_path: Path
) -> None:
    odd = tmp_path / "odd.toml"
    if what == "a pipe":
        os.mkfifo(odd)
    elif what == "a device":
        odd.symlink_to("/dev/full")
    elif what == "a directory":
        odd.mkdir()
    else:
        with odd.open("wb") as file:
            file.truncate(1 << 40)
    refused(option, f"@{odd}" if option == "hosts" else str(odd))


@pytest.mark.parametrize("option", TOML)
@pytest.mark.parametrize("text", ["x = " + "[" * 50_000, "x" + ".x" * 50_000 + " = 1", "x = {" * 50_000], ids=len)
def test_tables_that_lie_too_deep(option: str, text: str, refused: Refused, tmp_path: Path) -> None:
    deep = tmp_path / "deep.toml"
    deep.write_text(text)
    refused(option, str(deep))
