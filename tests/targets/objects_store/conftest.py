"""Fixtures: a healthy server, a faulty server, and a store on the healthy server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_ckpt.targets.objects.store import ObjectStore, open_store
from tests.support.bucket import NAMES, create_target
from tests.support.targets import object_faults_sizes  # noqa: F401 - its faults are in the table, too
from tests.support.targets.object_server import (
    CREDENTIALS,
    Misbehaving,
    misbehaving_server,
    object_server,
)


@pytest.fixture(scope="module")
def honest() -> Iterator[str]:
    with object_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def misbehaving() -> Iterator[Misbehaving]:
    with misbehaving_server() as found:
        yield found


@pytest.fixture
def server(misbehaving) -> Iterator[Misbehaving]:
    yield misbehaving
    misbehaving.faults.clear()


@pytest.fixture(autouse=True)
def credentials(monkeypatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def store(honest, request) -> Iterator[ObjectStore]:
    storage, area = create_target(honest, "run", request.node.name.replace("[", "-").replace("]", ""))
    attached = open_store(area)
    yield attached
    attached.close()
    storage.clean(area, NAMES, 60.0)
