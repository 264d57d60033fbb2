"""STALE states how long another client may serve outdated cached data.

If a mount option shortens this time, STALE also names the option.
"""

from __future__ import annotations

import pytest

from pytest_ckpt.config.gate_files import built_in
from pytest_ckpt.facts.observation import SECOND_MOUNT, Anomaly, Observation
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.behaviour import Memory, promise_of
from pytest_ckpt.judging.verdicts import decide_observed

DEFAULT = "nfs4 rw,relatime,vers=4.2,rsize=1048576,hard,proto=tcp,sec=sys"
ONE_SECOND = f"{DEFAULT},acregmin=1,acregmax=1,acdirmin=1,acdirmax=1"


@pytest.mark.parametrize(
    ("mount", "what", "seconds", "basis"),
    [
        (DEFAULT, "attributes", 60.0, "acregmin=3 by default, acregmax=60 by default"),
        (DEFAULT, "names", 60.0, "acdirmin=30 by default, acdirmax=60 by default"),
        (DEFAULT, "negative-names", 60.0, "acdirmin=30 by default, acdirmax=60 by default"),
        (ONE_SECOND, "attributes", 1.0, "acregmin=1, acregmax=1"),
        (ONE_SECOND, "negative-names", 1.0, "acdirmin=1, acdirmax=1"),
        (f"{DEFAULT},acregmax=5,acdirmax=120", "names", 120.0, "acdirmin=30 by default, acdirmax=120"),
        (f"{DEFAULT},lookupcache=pos", "negative-names", 0.0, "lookupcache=pos"),
        (f"{DEFAULT},lookupcache=none", "names", 60.0, "acdirmin=30 by default, acdirmax=60 by default"),
        (f"{DEFAULT},noac", "attributes", 0.0, "noac"),
        ("nfs rw,vers=3", "attributes", 60.0, "acregmin=3 by default, acregmax=60 by default"),
        ("ceph rw,acl", "names", 0.0, "CephFS: the servers withdraw what a client remembers before a change"),
        ("fuse.ceph-fuse rw", "names", 0.0, "CephFS: the servers withdraw what a client remembers before a change"),
        ("fuse.glusterfs rw,max_read=131072", "attributes", 1.0, "attribute-timeout=1 by default"),
        ("fuse.glusterfs rw,max_read=131072", "names", 1.0, "entry-timeout=1 by default"),
        ("fuse.glusterfs rw,max_read=131072", "negative-names", 0.0, "negative-timeout=0 by default"),
        ("fuse.sshfs rw,attr_timeout=20", "attributes", 20.0, "attr_timeout=20"),
        ("fuse.sshfs rw,entry_timeout=0.5", "names", 0.5, "entry_timeout=0.5"),
        ("fuse.sshfs rw,entry_timeout=0", "names", 0.0, "entry_timeout=0"),
        ("fuse.sshfs rw", "names", None, "entry_timeout is not among its options, and its default may be 1 s"),
    ],
)
def test_the_promise_follows_from_the_options_of_the_mount(
    mount: str, what: Memory, seconds: float | None, basis: str
) -> None:
    promise = promise_of(mount, what)
    assert promise is not None
    assert (promise.seconds, promise.basis) == (seconds, basis)
    assert bool(promise.shorter) is bool(seconds and (seconds > 1 or not mount.startswith("nfs")))


@pytest.mark.parametrize("kind", ["lustre rw", "beegfs rw", "ext4 rw", "weird"])
def test_other_file_systems_have_no_known_staleness_limit(kind: str) -> None:
    assert promise_of(kind, "names") is None


def judged(subject: str, mount: str, measured: float = 2.5, **more: object) -> Verdict:
    facts = {SECOND_MOUNT: mount} if mount else {}
    observation = Observation(
        requirement="STALE",
        subject=subject,
        trials=60,
        measured=measured,
        unit="s",
        facts=facts,
        **more,  # type: ignore[arg-type]
    )
    return decide_observed(REQUIREMENTS["STALE"], observation, built_in("posix-shared"))


def test_the_sentence_names_the_promise_and_the_option_that_shortens_it() -> None:
    verdict = judged("attributes", DEFAULT)
    assert (verdict.outcome, verdict.severity) == ("failed", "advisory")
    assert verdict.because == (
        "Took 2.5 s; limit 1 s, in 60 trials. The mount of the second client remembers attributes for up to 60 s "
        "(acregmin=3 by default, acregmax=60 by default); actimeo=1 shortens that."
    )


def test_a_time_beyond_the_promise_is_reported() -> None:
    assert judged("attributes", ONE_SECOND, 2.5).because.endswith(" The measured time is longer than that.")
    assert not judged("attributes", ONE_SECOND, 1.5).because.endswith("longer than that.")
    told = judged("names", "ceph rw", 2.5).because
    assert "promises current names (CephFS" in told
    assert told.endswith(" The measured time is longer than that.")


def test_the_verdict_names_a_client_that_never_agreed_and_the_promise_of_the_mount() -> None:
    late = Anomaly(kind="stale size", where="file", seen="0 after 10 s", expected="7 within 1 s")
    verdict = judged("attributes", DEFAULT, 10.0, anomaly_count=1, anomalies=(late,))
    assert verdict.reason == "anomaly"
    assert "actimeo=1 shortens that." in verdict.because


@pytest.mark.parametrize("mount", ["", "lustre rw"])
def test_without_a_known_promise_the_time_stands_alone(mount: str) -> None:
    assert judged("names", mount, 0.5).because == "Worst: 500 ms; limit 1 s, in 60 trials."


def test_a_mount_without_known_options_is_reported() -> None:
    told = judged("names", "fuse.sshfs rw", 0.5).because
    assert told.endswith(
        "The mount of the second client does not show how long it remembers names: entry_timeout is not among its "
        "options, and its default may be 1 s."
    )
