"""Detection of an endpoint on this host, by loopback or by another address of the host."""

from __future__ import annotations

import socket

import pytest

from pytest_ckpt.facts.targets import Access
from pytest_ckpt.targets.objects.target import endpoint_location, target


def non_loopback_address() -> str:
    """Return an address of this host other than loopback; skip the test if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            # Nothing is sent: the kernel only chooses the address by its routes.
            trial.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no route to others")
        return str(trial.getsockname()[0])


@pytest.mark.parametrize(("endpoint", "near"), [
    ("http://127.0.0.1:9000", "loopback"),
    ("http://[::1]:9000", "loopback"),
    ("https://localhost:9000", "loopback"),
    ("https://a.localhost", "loopback"),
    ("http://192.0.2.1:9000", "elsewhere"),
    ("https://no-such-name.invalid", "elsewhere"),
])  # fmt: skip
def test_an_endpoint_is_where_its_address_is(endpoint, near):
    assert endpoint_location(endpoint, may_connect=False) == near


def test_an_address_of_this_host_is_on_this_host():
    assert endpoint_location(f"http://{non_loopback_address()}:9000", may_connect=False) == "this host"


@pytest.mark.parametrize(("endpoints", "kind", "is_local"), [
    (("http://127.0.0.1:1",), "object-local", True),
    (("http://192.0.2.1:1",), "object", False),
    # One remote endpoint is not enough if another one is on this host.
    (("http://192.0.2.1:1", "http://127.0.0.1:1"), "object-local", False),
    ((), "object", False),
])  # fmt: skip
def test_a_store_on_this_host_is_judged_by_gates_that_certify_nothing(endpoints, kind, is_local):
    facts = target("test/ckpt", Access(endpoints=endpoints)).describe()
    assert (facts.gate_kind, facts.is_local) == (kind, is_local)
