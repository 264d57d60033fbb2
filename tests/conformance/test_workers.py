"""What a check knows of the processes that it starts beside itself."""

from __future__ import annotations

from pytest_ckpt.conformance.workers import working
from tests.support.machine import eventually

LOOKS = 20_000


def test_a_call_never_seems_to_have_begun_before_its_process(tmp_path):
    def calls(talk):
        while True:
            talk.at("open", tmp_path)

    with working([calls]) as (worker,):
        began = worker.doing[0]
        eventually(lambda: worker.doing[1] == "open", "it makes calls")
        looks = [worker.doing[0] for _ in range(LOOKS)]
    assert min(looks) >= began
