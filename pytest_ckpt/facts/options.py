"""The table of options. pytest's options, the command's options, `Settings` and the documentation are derived from it.

If pytest-ckpt is installed, every pytest run imports this module. To be fast, the module contains only literals,
imports only small modules, and names parsers without importing them.
"""

from __future__ import annotations

import argparse
from typing import Any, Literal, NamedTuple

from pytest_ckpt.facts.engines import BUILT_IN, DEFAULT
from pytest_ckpt.facts.file_rules import PACES
from pytest_ckpt.facts.gate_tables import GATE_TABLES
from pytest_ckpt.facts.strategies import STRATEGIES

Group = Literal["target", "cluster and limits", "workload", "checks", "evidence"]
Role = Literal["limit", "plan", "condition", "disclosed"]

GROUPS: tuple[Group, ...] = ("target", "cluster and limits", "workload", "checks", "evidence")
"""The groups of ``--help`` and of the documentation, in order."""

ROLES: dict[Role, str] = {
    "limit": "`pytest-ckpt judge` also has this option: it judges a finished run with another value.",
    "plan": "`pytest-ckpt judge` keeps the value of the run, because the value decided what was measured.",
    "condition": "A trend compares only runs with the same value.",
    "disclosed": "Any value but the default is listed under the disclosures of the certificate.",
}
"""The roles of an option, with a description. An option may have several roles.

If an option has both ``limit`` and ``plan``, a new judgement uses the value of the run unless another value is given.
"""

ACTIONS = "actions"
"""The option that names the file of user commands."""


class Option(NamedTuple):
    """One option: its name is ``ckpt_<key>`` in ini files, ``--ckpt-<key>`` on a command line.

    - ``help``: the line of ``--help``. ``is_listed``: ``--help`` contains the line.
    - ``more``: additional sentences of the documentation.
    - ``parse``: the function of ``config.parsers`` that converts the text to the value.
    - ``field``: the name of the field of `Settings` that contains the value. If empty, the name is ``key``. ``-``:
      `Settings` has no field for the option.
    - ``unset``: the value of the field if the option is not set.
    - ``example``: a value as a user writes it in a file.

    A row with a ``parent`` is a parameter of some values of the option ``parent``. ``name`` is the name of the
    parameter, and ``owners`` are the values that have the parameter. For example, ``changed`` is a parameter of the
    strategy ``incremental``. A user writes ``--ckpt-strategy=incremental:changed=10%``, or a line in the table
    ``[strategy.incremental]`` of the TOML file. If the parent is ``actions``, the owners are tables in the file of user
    commands.

    A row with ``variables`` is set only by environment variables. The first variable that is set gives the value.

    Rows are NamedTuples because Python creates this class faster than a dataclass.
    """

    key: str
    group: Group
    help: str
    parse: str
    example: str
    metavar: str = ""
    default: str = ""
    roles: tuple[Role, ...] = ("disclosed",)
    field: str = ""
    unset: Any = None
    aliases: tuple[str, ...] = ()
    is_flag: bool = False
    is_listed: bool = True
    more: str = ""
    parent: str = ""
    owners: tuple[str, ...] = ()
    name: str = ""
    variables: tuple[str, ...] = ()

    @property
    def ini_name(self) -> str:
        """The option's name in pytest's ini files and in the TOML file.

        For a parameter, this name is used only internally.
        """
        return f"ckpt_{self.key}"

    @property
    def flag(self) -> str:
        """The option's name in errors and reports, such as ``--ckpt-target``."""
        if self.variables:
            return self.variables[0]
        if self.parent == ACTIONS:
            return f"--ckpt-{ACTIONS} [{self.owners[0]}] {self.name}"
        if self.parent:
            return self.flag_of(self.owners[0])
        return "--" + self.ini_name.replace("_", "-")

    @property
    def flags(self) -> tuple[str, ...]:
        """All names of the option on a command line; empty for a parameter or an environment variable."""
        return (*self.aliases, self.flag) if self.is_option else ()

    @property
    def usual_flag(self) -> str:
        """The name to use in examples: the first alias, or ``flag`` if the option has no alias."""
        return (*self.aliases, self.flag)[0]

    @property
    def help_line(self) -> str:
        """The line of ``--help``: the help and the default."""
        return self.help + (f" (default: {self.default})" if self.default and not self.is_flag else "")

    @property
    def is_option(self) -> bool:
        """Whether the row is an option of command lines and ini files, not a parameter or an environment variable."""
        return not self.parent and not self.variables

    @property
    def suite(self) -> str:
        """The suite that a parameter belongs to; empty if the row is not a parameter of a suite."""
        return self.owners[0] if self.parent == "suite" else ""

    def flag_of(self, owner: str) -> str:
        """Return the parameter for one of its owners, as a user writes it: ``--ckpt-strategy=incremental:changed``."""
        return f"--ckpt-{self.parent}={owner}:{self.name}"


NOT_SET = "not set"
"""The text for an option without a default.

"none" could be read as a value of the option.
"""

# Strategies with which training continues during a save, so that simulated steps run.
_CONTINUE = tuple(strategy.name for strategy in STRATEGIES if not strategy.blocks)

OPTIONS: tuple[Option, ...] = (
    Option(key="target", group="target", metavar="PATH", parse="read_path", example="/mnt/array/ckpt",
           roles=("condition",),
           help="directory on the storage, or s3://bucket/prefix",
           more="The directory must exist; checkpoints are written below it. gs://bucket/prefix and "
           "az://container/prefix name other object stores. scheme://… names a target of a plugin."),
    Option(key="endpoint", group="target", metavar="URL", parse="read_endpoints",
           example="https://s3.array.example:9000", roles=("condition", "disclosed"), field="endpoints", unset=(),
           help="endpoint of the object store",
           more="Several endpoints are separated by commas; ranks are spread evenly over them. The value embedded "
           "starts an object store on this host, for a first run."),
    Option(key="ca_bundle", group="target", metavar="FILE", parse="read_path", example="/etc/ssl/array-ca.pem",
           roles=("disclosed",), variables=("AWS_CA_BUNDLE", "SSL_CERT_FILE"),
           help="certificates (PEM) that verify the TLS of the endpoint",
           more="They replace the certificates of the system. If both variables are set, the first one applies. The "
           "run passes the path to all hosts."),
    Option(key="unversioned", group="target", default="off", parse="read_switch", example="on",
           roles=("disclosed",), is_flag=True, is_listed=False,
           help="declaration that the bucket keeps no versions",
           more="The option is needed if the credentials do not permit a query of the bucket's versioning."),
    Option(key="hosts", group="target", metavar="LIST", default="localhost", parse="read_hosts",
           example="node1:8,node2:8", roles=("condition", "disclosed"), unset=(),
           help="hosts and slots: a:8,b:8 or @file",
           more="The ranks run on these hosts. @file names a host file with one host a line."),
    Option(key="ranks", group="target", metavar="N", parse="read_processes", example="64",
           roles=("plan", "disclosed"),
           help="number of ranks (default: slots of hosts, or 8)"),
    Option(key="launcher", group="target", metavar="CMD", parse="read_command",
           example="srun --mpi=pmix --distribution=arbitrary --nodelist={ranks}", roles=("disclosed",),
           help="command that starts ranks: 'srun --mpi=pmix'",
           more="The run replaces {processes}, {hosts} (a:2,b:2), {nodes} (a,b) and {ranks} (a,a,b,b) by its values. "
           "Without the option, the installed mpiexec starts the ranks."),
    Option(key="ports", group="target", metavar="FIRST-LAST", parse="read_ports", example="20000-20100", roles=(),
           is_listed=False,
           help="TCP ports for connections between hosts",
           more="Ranks and a second client connect to this host, and hosts to each other while they measure their "
           "network. Give the ports that a firewall allows; without the option, the kernel chooses."),
    Option(key="nic_rate", group="target", metavar="RATE", parse="read_rate", example="25GB/s", roles=(),
           is_listed=False,
           help="network rate of each host in one direction",
           more="In bytes or bits a second: 25GB/s, 200Gb/s. Without the option, several hosts stream to "
           "each other for 2 s in each direction before the first write."),
    Option(key="cluster", group="cluster and limits", metavar="N", parse="read_accelerators", example="16000",
           roles=("limit", "plan"), aliases=("--cluster",),
           help="number of accelerators in the cluster"),
    Option(key="save_budget", group="cluster and limits", metavar="%", default="5%", parse="read_share",
           example="3%", roles=("limit", "plan", "disclosed"),
           help="share of training time for saves"),
    Option(key="load_budget", group="cluster and limits", metavar="%", default="1%", parse="read_share",
           example="0.5%", roles=("limit", "plan", "disclosed"),
           help="share of the MTTF for a restore",
           more="MTTF is the mean time to failure of the cluster."),
    Option(key="checkpoints_per_failure", group="cluster and limits", metavar="K", default="20", parse="read_number",
           example="30", roles=("limit", "plan", "disclosed"), is_listed=False,
           help="checkpoints saved per failure"),
    Option(key="failures", group="cluster and limits", metavar="RATE", default="llama3", parse="read_failures",
           example="observed:419/54d@16000", roles=("limit", "plan", "disclosed"),
           help="failure model: mttf:50000h",
           more="With mttf, the value is the mean time to failure of one accelerator. Other values are llama3, "
           "node-days:6.5 (6.5 failures in 1,000 days of a node with 8 accelerators) and observed:419/54d@16000 (419 "
           "failures in 54 days of 16,000 accelerators)."),
    Option(key="gate_table", group="cluster and limits", metavar="NAME", default="auto", parse="read_path",
           example="posix-shared", roles=("limit", "disclosed"),
           help="requirements of a certificate, and limits",
           more=f"A gate table that ships ({', '.join(GATE_TABLES)}), or a TOML file that extends one of them. auto "
           "chooses by the kind of the target."),
    Option(key="waivers", group="cluster and limits", metavar="FILE", parse="read_path", example="waivers.toml",
           roles=("disclosed",),
           help="waivers (TOML): requirement, reason, expiry date",
           more="With a waiver of a required requirement, a run is not certified."),
    Option(key="model", group="workload", metavar="NAMES", default="all", parse="read_models",
           example="llama3-8b,llama3-70b", roles=("plan", "disclosed"), field="models",
           help="models, such as llama3-8b,llama3-70b",
           more="The value all means every built-in model, from 8B to 1T parameters. If there are too few ranks for a "
           "model, a local file system gets the part of one node (--ckpt-mode), and on shared storage this model is "
           "left out. Files describe other models: ./my-model.toml, or a config.json of Hugging Face."),
    Option(key="parallel", group="workload", metavar="LIST", parse="read_parallel",
           example="tp=8,pp=4,ep=1,dp=2,zero=1", roles=("plan", "disclosed"), field="-", is_listed=False,
           help="parallelism of models from files",
           more="The values are tensor (tp), pipeline (pp), expert (ep) and data (dp) parallelism, and the ZeRO stage "
           "(3: fully sharded). They replace the values of the file."),
    Option(key="optimizer", group="workload", metavar="NAME", parse="read_optimizer", example="adamw-bf16",
           roles=("plan", "disclosed"), field="-", is_listed=False,
           help="optimizer of models from files",
           more="Values: adamw, adamw-bf16, muon, adafactor, bytes:N. If the weights are in bfloat16, a checkpoint has "
           "14 bytes for each parameter with adamw, 10 with adamw-bf16 and muon, 6 with adafactor, and N with bytes:N. "
           "The option replaces the optimizer of the file."),
    Option(key="mode", group="workload", metavar="MODE", default="auto", parse="read_mode", example="full",
           roles=("plan", "disclosed"),
           help="ranks of a model: full, subset or open",
           more="With full, the run has all ranks of the layout; with subset, ranks 0 to 7 of the layout (one node); "
           "with open, as many ranks as --ckpt-ranks. With auto, the mode is full if there are enough ranks. If there "
           "are fewer, it is subset on a local file system, and on shared storage the model is left out."),
    Option(key="engine", group="workload", metavar="NAME", default=DEFAULT.name, parse="read_engines",
           example="torch", roles=("plan", "condition", "disclosed"), field="engines",
           help="how bytes reach the storage",
           more="Several engines are separated by commas: "
           + ", ".join(f"{engine.name} ({engine.help})" for engine in BUILT_IN) + "."),
    Option(key="io_size", group="workload", parent="engine", owners=("stream",), name="io-size", metavar="SIZE",
           default="4MiB", parse="read_request", example="8MiB", roles=("plan", "condition", "disclosed"),
           field="io_size_bytes",
           help="size of a request"),
    Option(key="io_depth", group="workload", parent="engine", owners=("stream",), name="depth", metavar="N",
           parse="read_depth", example="4", roles=("plan", "condition", "disclosed"), unset=0,
           help="requests in flight per rank",
           more="Without the parameter, a test of a few seconds on scratch files finds the best number before the "
           "first save, with at most 128 MiB of buffers per rank. If files have too few requests for this test, the "
           "number is 2."),
    Option(key="replay_file", group="workload", parent="engine", owners=("replay",), name="file", metavar="FILE",
           parse="read_path", example="job.pattern.json", field="-", roles=("plan", "condition", "disclosed"),
           help="recorded job to replay",
           more="A file that pytest-ckpt record wrote, or the name of a built-in pattern, such as dcp."),
    Option(key="replay_timing", group="workload", parent="engine", owners=("replay",), name="timing", metavar="PACE",
           parse="read_pace", example=PACES[1], unset=PACES[0], field="-",
           roles=("plan", "condition", "disclosed"),
           help="pauses between calls: asap or recorded",
           more="With asap, each call starts when the previous call has ended. With recorded, each call starts after "
           "the pause that the job made. Without the parameter, asap applies."),
    Option(key="strategy", group="workload", metavar="NAME", default=STRATEGIES[0].name, parse="read_strategies",
           example="sync,async", roles=("plan", "disclosed"), field="strategies",
           help="when training resumes during a save",
           more="Several strategies are separated by commas: "
           + ", ".join(f"{strategy.name} ({strategy.help})" for strategy in STRATEGIES) + "."),
    Option(key="changed_pages", group="workload", parent="strategy", owners=("incremental", "hybrid"), name="changed",
           metavar="PERCENT", parse="read_changed", example="10%", roles=("plan", "disclosed"), unset=0.0,
           help="share of pages that change between two saves, from 1 %",
           more="The parameter is mandatory. Dense training changes all pages. Sparse experts, adapters and frozen "
           "layers change about 10 %."),
    Option(key="full_every", group="workload", parent="strategy", owners=("incremental", "hybrid"), name="full-every",
           metavar="N", default="10", parse="read_full_every", example="5", roles=("plan", "disclosed"),
           help="saves from one full save to the next",
           more="If a run has fewer saves than this number, only its first save is full."),
    Option(key="local_tier", group="workload", parent="strategy", owners=("tiered",), name="local-tier",
           metavar="PATH", parse="read_path", example="/mnt/nvme/ckpt", roles=("plan", "disclosed"),
           help="directory for the first copy of a checkpoint",
           more="The parameter is mandatory. The directory must exist on each host, on a disk or in memory."),
    Option(key="drain_every", group="workload", parent="strategy", owners=("tiered",), name="drain-every", metavar="N",
           default="10", parse="read_number", example="5", roles=("plan", "disclosed"),
           help="saves from one drain to the target to the next",
           more="A job is assumed to drain one of this number of saves; a run drains every save. The time limit of a "
           "drain follows from this number."),
    Option(key="target_share", group="workload", parent="strategy", owners=("tiered",), name="target-share",
           metavar="PERCENT", default="10%", parse="read_share", example="5%", roles=("plan", "disclosed"),
           help="share of failures that restore from the target",
           more="In these failures the local tiers are lost."),
    Option(key="compress", group="workload", parent="strategy", owners=("compressed",), name="codec", metavar="CODEC",
           parse="read_codec", example="lz4", roles=("plan", "condition", "disclosed"), unset="zstd:1",
           help="codec and level: zstd:1 to zstd:22, lz4:0 to lz4:12",
           more="Without the parameter, the codec is zstd:1."),
    Option(key="step_seconds", group="workload", parent="strategy", owners=_CONTINUE, name="step", metavar="DURATION",
           default="50ms", parse="read_step", example="1s", roles=("plan", "disclosed"),
           help="duration of one simulated training step during a save"),
    Option(key="step_cpu", group="workload", parent="strategy", owners=_CONTINUE, name="step-cpu", metavar="PERCENT",
           default="10%", parse="read_share", example="20%", roles=("plan", "disclosed"),
           help="share of a step in which the core of a rank works",
           more="For the rest of the step the rank waits, as for an accelerator."),
    Option(key="profile", group="workload", metavar="NAME", default="acceptance", parse="read_profile",
           example="nightly", roles=("plan", "disclosed"),
           help="size and operations: acceptance, nightly, smoke",
           more="The profile acceptance has the full size, 10 saves and 10 loads; nightly 1/100 of the size, 10 saves "
           "and 10 loads; smoke 1/1000 of the size, 3 saves and 3 loads."),
    Option(key="scale", group="workload", metavar="SHARE", parse="read_scale", example="1/50",
           roles=("plan", "disclosed"),
           help="share of the full size; below 1: a rehearsal",
           more="The option replaces the share of the profile."),
    Option(key="operations", group="workload", metavar="N", parse="read_operations", example="300",
           roles=("plan", "disclosed"),
           help="number of saves and of loads; below 10: a rehearsal",
           more="The option replaces the number of the profile."),
    Option(key="confidence", group="workload", metavar="%", parse="read_assurance", example="95/99",
           roles=("plan", "disclosed"), field="assurance",
           help="confidence/share within the limit, such as 95/99",
           more="The run has enough saves and loads to show this share with this confidence, if all of them meet the "
           "limit and are independent: 59 of each for 95/95, 299 for 95/99. With `95/99:misses=1` it has 473 of each, "
           "and one save and one load may miss the limit. A plan with misses is refused if it proves a smaller "
           "share than ten operations of which all meet the limit."),
    Option(key="keep_last", group="workload", metavar="K", parse="read_operations", example="2",
           roles=("plan", "condition", "disclosed"), unset=0,
           help="keep only the newest K checkpoints",
           more="Loads read these checkpoints in turn, with caches dropped before each load (requirement RETENTION)."),
    Option(key="compressible", group="workload", metavar="SHARE", parse="read_share", example="30%",
           roles=("plan", "condition", "disclosed"), unset=0.0, is_listed=False,
           help="share of zeros in every page",
           more="Such content shows the data reduction of an array. The run is a rehearsal."),
    Option(key="seed", group="workload", metavar="N", parse="read_seed", example="42", roles=("disclosed",),
           is_listed=False,
           help="seed of the content of the checkpoints",
           more="By default the seed is random. The report contains it."),
    Option(key="keep_files", group="workload", default="off", parse="read_switch", example="on",
           roles=("plan", "disclosed"), is_flag=True, is_listed=False,
           help="leave the checkpoints on the target"),
    Option(key="suite", group="checks", metavar="NAMES", default="auto", parse="read_suites",
           example="performance,conformance", roles=("plan", "disclosed"), field="suites",
           help="suites, such as performance,scaling",
           more="Names: performance, strategies, contention, conformance, endurance, failover, maintenance, serving, "
           "scaling, metadata, all. The value auto means the suites that the gate table requires. If a suite is not "
           "chosen, its requirements count as not run. With --ckpt-profile=smoke, all leaves out metadata."),
    Option(key="data_pairs", group="checks", parent="suite", owners=("performance",), name="data-pairs", metavar="N",
           parse="read_operations", example="3", roles=("plan", "disclosed"), unset=0,
           help="pairs of saves and loads of constant and of unique data",
           more="Requirement DATA compares them."),
    Option(key="preemption_notice", group="checks", parent="suite", owners=("strategies",), name="preemption-notice",
           metavar="DURATION", parse="read_seconds", example="120s", roles=("plan", "disclosed"),
           field="preemption_notice_seconds", unset=0.0,
           help="time between the warning and the termination of a job",
           more="Requirement PREEMPT."),
    Option(key="duration", group="checks", parent="suite", owners=("endurance",), name="duration", metavar="DURATION",
           parse="read_days", example="4h", roles=("plan", "disclosed"), field="duration_seconds", unset=0.0,
           help="duration of the repeated saves, up to 30d",
           more="Requirement ENDURE."),
    Option(key="near_full", group="checks", parent="suite", owners=("endurance",), name="near-full", default="off",
           parse="read_switch", example="on", roles=("plan", "disclosed"), is_flag=True,
           help="fill the target's volume to 80 and 90 %",
           more="Requirement NEARFULL. The run removes this ballast. A run is refused if the volume contains other "
           "data."),
    Option(key="serving_readers", group="checks", parent="suite", owners=("serving",), name="readers", metavar="N",
           default="8", parse="read_number", example="16", roles=("plan", "disclosed"),
           help="ranks that load one replica of the weights together",
           more="Each rank reads its part of every file. The ranks form groups of this size, and all groups load at "
           "the same time, one replica each."),
    Option(key="serving_limit", group="checks", parent="suite", owners=("serving",), name="load-limit",
           metavar="DURATION", parse="read_seconds", example="60s", roles=("plan", "disclosed"),
           field="serving_limit_seconds", unset=0.0,
           help="time limit for replicas to load the weights, cold",
           more="Requirement MODEL-LOAD. Without the parameter, the load limit of the cluster applies."),
    Option(key="consolidate_limit", group="checks", parent="suite", owners=("serving",), name="consolidate-limit",
           metavar="DURATION", default="1h", parse="read_seconds", example="20min", roles=("plan", "disclosed"),
           field="consolidate_limit_seconds",
           help="time limit for one client to read and rewrite the weights",
           more="Requirement CONSOLIDATE."),
    Option(key="vendor_max_rate", group="checks", parent="suite", owners=("scaling",), name="vendor-max-rate",
           metavar="RATE", parse="read_ceilings", example="60GB/s:120GB/s", roles=("plan", "disclosed"),
           field="vendor_max_rates", unset=(0.0, 0.0),
           help="maximum throughput stated by the vendor: RATE or WRITE:READ",
           more="Above this rate, SCALING does not require that more clients get more throughput."),
    Option(key="metadata_files", group="checks", parent="suite", owners=("metadata",), name="files", metavar="N",
           default="100000", parse="read_number", example="1000000", roles=("plan", "disclosed"),
           help="empty files that all ranks together create, look up, list and remove",
           more="Requirement METADATA."),
    Option(key="metadata_directories", group="checks", parent="suite", owners=("metadata",), name="directories",
           metavar="N", default="1000", parse="read_number", example="500000", roles=("plan", "disclosed"),
           help="sub-directories that contain these files",
           more="The files are distributed evenly over them. Requirement METADATA."),
    Option(key="loader_rate", group="checks", parent="suite", owners=("contention",), name="loader-rate",
           metavar="RATE", default="10MB/s", parse="read_loader_rate", example="8xresnet50",
           roles=("plan", "disclosed"), field="loader_bytes_per_second",
           help="rate at which the data loader of each host reads during saves",
           more="Requirement MIXED. resnet50, cosmoflow and unet3d are MLPerf Storage's rates of one H100; 8xresnet50 "
           "is the rate of eight."),
    Option(key="second_mount", group="checks", metavar="PATH", parse="read_path", example="/mnt/array-again/ckpt",
           roles=("plan", "disclosed"),
           help="second mount of the target, as a second client",
           more="The path on this host at which the target is mounted a second time."),
    Option(key="client_cache", group="checks", metavar="SIZE", parse="read_cache_size", example="200GB",
           roles=("plan", "disclosed"), field="client_cache_bytes", is_listed=False,
           help="on-disk cache of the storage client per host; 0: no cache",
           more="If the kernel cannot report cached pages, COLD can be proved by the number of bytes that were moved "
           "between a save and its load. This proof needs the size of the cache. Without the option, the size counts "
           "as unknown."),
    Option(key="small_volume", group="checks", metavar="PATH", parse="read_path", example="/mnt/array-small",
           roles=("plan", "disclosed"),
           help="directory on a small volume that may be filled",
           more="The volume or quota is separate from the target, on the same storage. Checks fill it temporarily."),
    Option(key=ACTIONS, group="checks", metavar="FILE", parse="read_path", example="actions.toml", field="-",
           roles=(),
           help="commands (TOML) for power cut, failover, snapshot",
           more="Each table of the file contains the commands of one action. The commands change the storage; they run "
           "on this host without a shell."),
    Option(key="power_cut", group="checks", parent=ACTIONS, owners=("power_cut",), name="command", metavar="COMMAND",
           parse="read_command", example="/usr/local/sbin/pull-the-plug --and-wait", roles=("plan", "disclosed"),
           help="command that cuts the power of the storage and returns when the storage is back",
           more="On a network mount the command prints boot-id ID or uptime SECONDS of the server, before and after "
           "the cut."),
    Option(key="power_cuts", group="checks", parent=ACTIONS, owners=("power_cut",), name="times", metavar="N",
           default="3", parse="read_cuts", example="10", roles=("disclosed",),
           help="number of power cuts",
           more="If N power cuts lose no data, at most 1 - 0.05^(1/N) of power cuts lose data (95 % confidence): 63 % "
           "for 3, 5 % for 59."),
    Option(key="fault_command", group="checks", parent=ACTIONS, owners=("failover",), name="fault", metavar="COMMAND",
           parse="read_command", example="ssh array-admin fail-drive 7", roles=("plan", "disclosed"),
           help="command that fails a component of the storage",
           more="It runs at random moments of separate saves and loads (requirement FAILOVER). It needs the command "
           "repair."),
    Option(key="repair_command", group="checks", parent=ACTIONS, owners=("failover",), name="repair",
           metavar="COMMAND", parse="read_command", example="ssh array-admin replace-drive 7",
           roles=("plan", "disclosed"),
           help="command that repairs the component",
           more="It runs after each fault, also if the run ends early."),
    Option(key="upgrade_command", group="checks", parent=ACTIONS, owners=("upgrade",), name="command",
           metavar="COMMAND", parse="read_command", example="ssh array-admin rolling-restart --wait",
           roles=("plan", "disclosed"),
           help="command that restarts or upgrades the storage while it serves",
           more="It runs once, during separate saves and loads (requirement UPGRADE), and returns at the end of the "
           "upgrade."),
    Option(key="snapshot", group="checks", parent=ACTIONS, owners=("snapshot",), name="take", metavar="COMMAND",
           parse="read_command", example="/usr/local/sbin/snapshot-and-mount", roles=("plan", "disclosed"),
           field="snapshot_command",
           help="command that takes a snapshot of the target",
           more="Its last output line is the directory in which each host sees the snapshot. It runs during separate "
           "saves (requirement SNAPSHOT). It needs the command remove."),
    Option(key="remove_snapshot", group="checks", parent=ACTIONS, owners=("snapshot",), name="remove",
           metavar="COMMAND", parse="read_command", example="/usr/local/sbin/unmount-and-delete",
           roles=("plan", "disclosed"), field="remove_snapshot_command",
           help="command that removes the snapshot",
           more="Its last argument is the directory. It runs after each snapshot, also if the run ends early."),
    Option(key="drop_caches", group="checks", metavar="CMD", default="auto", parse="read_command",
           example="sudo /usr/local/sbin/drop-caches", roles=("condition", "disclosed"),
           help="how page caches are dropped: auto, never or a command",
           more="The command runs on every host without a shell."),
    Option(key="io_timeout", group="checks", metavar="DURATION", default="300s", parse="read_seconds",
           example="10min", field="io_timeout_seconds", roles=("disclosed",), is_listed=False,
           help="time without progress after which a rank counts as hung",
           more="A save or load that makes progress is also ended if it is far too slow: at its present rate it would "
           "take more than 50 times this time and more than 10 times its limit."),
    Option(key="report", group="evidence", metavar="DIR", default="ckpt-report", parse="read_path",
           example="/srv/acceptance/ckpt-report", roles=(),
           help="directory of the certificate and the evidence"),
    Option(key="resume", group="evidence", default="off", parse="read_switch", example="on", roles=(), is_flag=True,
           help="continue the run of --ckpt-report",
           more="Use it after a crash, a kill or a reboot, or to add suites. Complete measurements under the same "
           "conditions are kept."),
    Option(key="system", group="evidence", metavar="FILE", parse="read_path", example="system.toml", roles=(),
           help="description of the system under test (TOML)",
           more="pytest-ckpt doctor --write-system FILE writes a template."),
    Option(key="pdf", group="evidence", default="off", parse="read_switch", example="on", roles=(), is_flag=True,
           help="also write certificate.pdf",
           more="The option needs the extra: pip install 'pytest-ckpt[pdf]'."),
    Option(key="sign", group="evidence", metavar="KEY", parse="read_path", example="key.pem", roles=(),
           help="private key (Ed25519, PEM) that signs the report",
           more="The run signs report and manifest at its end."),
    Option(key="history", group="evidence", metavar="DIR", parse="read_path", example="/var/lib/ckpt", roles=(),
           help="directory of earlier runs, for pytest-ckpt trend"),
    Option(key="metrics", group="evidence", metavar="DESTINATION", parse="read_metrics",
           example="/var/lib/node_exporter/ckpt.prom", roles=(), is_listed=False,
           help="live metrics: FILE.prom or otlp://HOST:PORT",
           more="FILE.prom is OpenMetrics text for the textfile collector of node_exporter. otlp:// sends OTLP over "
           "HTTP to an OpenTelemetry collector (port 4318 by default). Needs the extra: pip install "
           "'pytest-ckpt[metrics]'."),
    Option(key="config", group="evidence", metavar="FILE", parse="read_path", example="nightly.toml", roles=(),
           field="-",
           help="file of options (TOML); see: pytest-ckpt options",
           more="Each line of the file is an option, such as ckpt_save_budget = \"3%\"; a table such as "
           "[suite.endurance] contains parameters."),
)  # fmt: skip
"""All options, in the order in which a finished run lists them."""

LISTS = tuple(dict.fromkeys(option.parent for option in OPTIONS if option.parent not in ("", ACTIONS)))
"""The keys of options whose value is a list of names, some with parameters."""


def with_role(role: Role) -> tuple[Option, ...]:
    """Return the options that have a role."""
    return tuple(option for option in OPTIONS if role in option.roles)


def parameters_of(parent: str, owner: str = "") -> tuple[Option, ...]:
    """Return the parameters of the option with the key ``parent``.

    If ``owner`` is given, return only the parameters that this value of the option has.
    """
    return tuple(o for o in OPTIONS if o.parent == parent and (not owner or owner in o.owners))


def option_of(word: str) -> Option | None:
    """Return the option that a word of a command line names; None for an unknown option.

    Examples of words are ``--ckpt-target=/mnt`` and ``target``.
    """
    name = word.partition("=")[0].removeprefix("--").replace("-", "_").removeprefix("ckpt_")
    return next((option for option in OPTIONS if option.key == name), None)


def parameter_hint(word: str) -> str:
    """Return a hint with the correct spelling if ``word`` names a parameter as if it were an option.

    For any other word, the result is an empty text.
    """
    option = option_of(word)
    return f" (write {option.flag})" if option and not option.is_option else ""


def declarations(option: Option, *, is_listed: bool) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return (name, keyword arguments of ``add_argument``) for each name of an option.

    If ``is_listed``, ``--help`` lists the first name. Other names are never listed.
    """
    words: dict[str, Any] = {"dest": option.ini_name, "help": option.help_line.replace("%", "%%")}
    if option.is_flag:
        words |= {"action": "store_const", "const": "on"}
    else:
        # If the option is given several times, its parameters are combined.
        words |= {"metavar": option.metavar} | ({"action": "append"} if option.key in LISTS else {})
    hidden = words | {"help": argparse.SUPPRESS}
    return tuple((flag, hidden if number or not is_listed else words) for number, flag in enumerate(option.flags))


def written(given: Any) -> str | None:
    """Return the text of an option from argparse's value ``given``; None if the option was not given.

    If the option was given several times, the text has one line for each time.
    """
    return "\n".join(given) if isinstance(given, list) else given
