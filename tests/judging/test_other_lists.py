"""Lines of other lists stand beside requirements that there are."""

from __future__ import annotations

from pytest_ckpt.judging.catalogue import REQUIREMENTS, row
from pytest_ckpt.judging.other_lists import ALSO_KNOWN_AS


def test_every_line_is_of_a_requirement_that_there_is() -> None:
    assert set(ALSO_KNOWN_AS) <= set(REQUIREMENTS)
    assert row(REQUIREMENTS["SAVE"]).also_known_as == ("NVIDIA HSS02",)
    assert row(REQUIREMENTS["INTEGRITY"]).also_known_as == ()
