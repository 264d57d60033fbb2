"""What counts as a refusal of direct I/O: the same everywhere, and nothing else."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.conformance.posix.checkpoints import read_past_caches
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.targets.posix.direct_io import NOT_OFFERED, DirectFile, DirectSupport
from tests.support.made_check import kinds, made

REFUSALS = [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS]


def direct_open_answers(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let every open with O_DIRECT fail."""
    real = os.open

    def refuse(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_DIRECT:
            raise OSError(number, os.strerror(number))
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refuse)


def test_the_refusals_are_those_of_the_kernel_of_networks_and_of_user_space() -> None:
    assert set(NOT_OFFERED) == {*REFUSALS, errno.ENOTSUP}


@pytest.mark.parametrize("number", REFUSALS, ids=errno.errorcode.get)
def test_ranks_and_checks_go_on_without_direct_io_where_it_is_not_offered(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct_open_answers(monkeypatch, number)
    way = DirectSupport()
    file = DirectFile(tmp_path / "file", os.O_CREAT | os.O_WRONLY, way, Clock(activity=Activity()))
    assert not file.direct
    assert os.strerror(number) in way.refused
    assert os.write(file.descriptor, b"bytes") == 5
    os.close(file.descriptor)
    assert read_past_caches(tmp_path / "file") == b"bytes"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_another_error_is_none(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    direct_open_answers(monkeypatch, number)
    with pytest.raises(OSError, match=os.strerror(number)):
        DirectFile(tmp_path / "file", os.O_CREAT | os.O_WRONLY, DirectSupport(), Clock(activity=Activity()))


@pytest.mark.parametrize("name", ["EINVAL", "EOPNOTSUPP", "ENOSYS"])
def test_the_check_of_direct_io_names_the_refusal(name: str, make_home: Any) -> None:
    lie = (
        "import errno, os\n"
        "real = os.open\n"
        "def lie(path, flags, *more, **named):\n"
        f"    if flags & os.O_DIRECT: raise OSError(errno.{name}, os.strerror(errno.{name}))\n"
        "    return real(path, flags, *more, **named)\n"
        "os.open = lie"
    )
    assert kinds(made("DIRECT.aligned", make_home("refused"), sabotage=lie)) == {"O_DIRECT refused"}
