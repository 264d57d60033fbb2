"""A Hypothesis strategy for subjects that have a valid text form."""

from __future__ import annotations

from hypothesis import strategies as st

from pytest_ckpt.facts.subject import Subject

st.register_type_strategy(Subject, st.builds(
    Subject, model=st.from_regex(r"[a-z][a-z0-9]*(-[a-z0-9]+b)?", fullmatch=True),
    mode=st.sampled_from(["full", "subset", "open"]), processes=st.none() | st.integers(1, 10**6),
    engine=st.from_regex(r"[a-z][a-z0-9_]*", fullmatch=True), strategy=st.sampled_from(["sync", "async", "tiered"]),
))  # fmt: skip
