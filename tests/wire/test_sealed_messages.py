"""Messages between a run and its processes are authenticated.

Another user cannot change, repeat, omit or add a message.
"""

from __future__ import annotations

import os

import pytest

from pytest_ckpt.wire.frames import ForgedMessage, FrameReader, Seal, framed, seals

SECRET, NONCES = bytes(32), bytes(range(32))
MESSAGES = [{"job": "x" * 1_000_000}, None, "end", [1, "ä"], {}]


def both_sides() -> tuple[Seal, Seal]:
    return seals(SECRET, NONCES)[0], seals(SECRET, NONCES)[0]


@pytest.mark.parametrize("piece", [1 << 20, 4000, 997])
def test_messages_arrive_complete_however_they_are_split(piece: int) -> None:
    sending, receiving = both_sides()
    stream = b"".join(framed(sending, message) for message in MESSAGES)
    unframed, found = FrameReader(receiving), []
    for at in range(0, len(stream), piece):
        unframed.add(stream[at : at + piece])
        while unframed.is_complete():
            found.append(unframed.message())
    assert found == MESSAGES


def test_the_same_message_is_sealed_otherwise_each_time() -> None:
    sending, _ = both_sides()
    assert sending.seal(b"the same words") != sending.seal(b"the same words")


def test_a_message_that_was_changed_repeated_or_left_out_is_not_believed() -> None:
    for spoil in (
        lambda first, second: bytes([first[0] ^ 1]) + first[1:],
        lambda first, second: first[:-1] + bytes([first[-1] ^ 1]),
        lambda first, second: second,
        lambda first, second: first[1:],
        lambda first, second: b"",
    ):
        sending, receiving = both_sides()
        with pytest.raises(ForgedMessage):
            receiving.open(spoil(sending.seal(b"first"), sending.seal(b"second")))
    sending, receiving = both_sides()
    first = sending.seal(b"first")
    assert receiving.open(first) == b"first"
    with pytest.raises(ForgedMessage):
        receiving.open(first)


def test_messages_are_rejected_from_the_other_side_and_on_other_connections() -> None:
    from_caller, to_caller = seals(SECRET, NONCES)
    for other in (to_caller, seals(SECRET, os.urandom(32))[0], seals(os.urandom(32), NONCES)[0]):
        with pytest.raises(ForgedMessage):
            other.open(from_caller.seal(b"words"))
        from_caller = seals(SECRET, NONCES)[0]
