"""The options, one row each: pytest, the command, Settings, judging, the trend and the documentation derive from them.

Every pytest run of an environment imports this module, whatever it tests: it holds literals, and imports nothing that
pytest has not imported already. Parsers are named, not imported.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pytest_ckpt.facts.engines import BUILT_IN, DEFAULT
from pytest_ckpt.facts.file_rules import PACES
from pytest_ckpt.facts.gate_tables import GATE_TABLES
from pytest_ckpt.facts.strategies import STRATEGIES

Group = Literal["target", "cluster and limits", "workload", "checks", "evidence", "advanced"]
Role = Literal["limit", "plan", "condition", "disclosed"]

GROUPS: tuple[Group, ...] = ("target", "cluster and limits", "workload", "checks", "evidence", "advanced")
"""The groups of ``--help`` and of the documentation, in order."""

ROLES: dict[Role, str] = {
    "limit": "`pytest-ckpt judge` takes it too and re-judges a finished run with another value.",
    "plan": "`pytest-ckpt judge` keeps the value of the run: it decides what was measured.",
    "condition": "A trend compares only runs with the same value.",
    "disclosed": "Any value but the default is listed under the disclosures of the certificate.",
}
"""What an option takes part in; ``limit`` with ``plan``: the value of the run counts unless another is given."""


class Option(NamedTuple):
    """One option: its name is ``ckpt_<key>`` in ini files, ``--ckpt-<key>`` on a command line.

    ``parse`` names a function of ``config.parsers``, from the text to the value. ``field`` names the field of Settings
    that holds the value, where it is not the key; ``-``: none. ``unset`` is the value of an option without text.
    ``example`` is a value as one would write it in a file. ``suite`` is the one without which it means nothing, where
    there is such. A NamedTuple and no dataclass: the class is made faster.
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
    suite: str = ""

    @property
    def ini_name(self) -> str:
        """The name in pytest's ini files and in the TOML file."""
        return f"ckpt_{self.key}"

    @property
    def flag(self) -> str:
        """The name on a command line."""
        return "--" + self.ini_name.replace("_", "-")

    @property
    def flags(self) -> tuple[str, ...]:
        """All names on a command line."""
        return (*self.aliases, self.flag)


OPTIONS: tuple[Option, ...] = (
    Option(key="target", group="target", metavar="PATH", parse="read_path", example="/mnt/array/ckpt",
           roles=("condition",),
           help="existing directory on the storage under test, or s3://bucket/prefix, gs://bucket/prefix or "
           "az://container/prefix of an object store, or scheme://… of a target that a plugin brings; checkpoints are "
           "written below it"),
    Option(key="endpoint", group="target", metavar="URL", parse="read_endpoints",
           example="https://s3.array.example:9000", roles=("condition", "disclosed"), field="endpoints", unset=(),
           help="endpoint of the object store, several separated by commas: ranks are spread evenly over them; "
           "embedded: a server that is started on this host, for a first run"),
    Option(key="ca_bundle", group="target", metavar="FILE", parse="read_path", example="/etc/ssl/array-ca.pem",
           roles=("disclosed",),
           help="certificates (PEM) by which the endpoint's TLS is verified, in place of the system's"),
    Option(key="unversioned", group="target", default="off", parse="read_switch", example="on",
           roles=("disclosed",), is_flag=True,
           help="the operator's word that the bucket keeps no versions, where the credentials may not ask it"),
    Option(key="local_tier", group="target", metavar="PATH", parse="read_path", example="/mnt/nvme/ckpt",
           roles=("plan", "disclosed"),
           help="existing directory on a disk or in the memory of the host, for strategy tiered: checkpoints are "
           "saved there first"),
    Option(key="hosts", group="target", metavar="LIST", default="localhost", parse="read_hosts",
           example="node1:8,node2:8", roles=("condition", "disclosed"), unset=(),
           help="hosts that run the ranks, with the slots of each: host:slots,… or @hostfile"),
    Option(key="ranks", group="target", metavar="N", parse="read_processes", example="64",
           roles=("plan", "disclosed"),
           help="number of ranks to start; the sum of the slots of --ckpt-hosts, or 8"),
    Option(key="launcher", group="target", metavar="COMMAND", parse="read_command",
           example="srun --mpi=pmix --distribution=arbitrary --nodelist={ranks}", roles=("disclosed",),
           help="command that starts the ranks, such as mpirun or 'srun --mpi=pmix'; {processes}, {hosts} (a:8,b:8), "
           "{nodes} (a,b) and {ranks} (a,a,b,b) are filled in; without it, the mpiexec that was installed"),
    Option(key="ports", group="target", metavar="FIRST-LAST", parse="read_ports", example="20000-20100", roles=(),
           help="ports (TCP) at which ranks and a second client call this host back, and hosts each other while they "
           "measure their network, where a firewall passes only those; without it, the kernel chooses"),
    Option(key="nic_rate", group="target", metavar="RATE", parse="read_rate", example="25GB/s", roles=(),
           help="what the network of each host carries in one direction, in bytes or bits a second (200Gbit/s); "
           "without it, several hosts stream to each other for 2 s in each direction before anything is written"),
    Option(key="cluster", group="cluster and limits", metavar="N", parse="read_accelerators", example="16000",
           roles=("limit", "plan"), aliases=("--cluster",),
           help="number of accelerators in the cluster that the storage is meant for"),
    Option(key="save_budget", group="cluster and limits", metavar="PERCENT", default="5%", parse="read_share",
           example="3%", roles=("limit", "plan", "disclosed"),
           help="share of training time that saves may cost"),
    Option(key="load_budget", group="cluster and limits", metavar="PERCENT", default="1%", parse="read_share",
           example="0.5%", roles=("limit", "plan", "disclosed"),
           help="share of the mean time between failures that a restore may take"),
    Option(key="checkpoints_per_failure", group="cluster and limits", metavar="K", default="20", parse="read_number",
           example="30", roles=("limit", "plan", "disclosed"),
           help="number of checkpoints saved for each failure of the cluster"),
    Option(key="failures", group="cluster and limits", metavar="MODEL", default="llama3", parse="read_failures",
           example="observed:419/54d@16000", roles=("limit", "plan", "disclosed"),
           help="failure model of the accelerators: llama3, mttf:50000h, node-days:6.5 (failures in 1,000 node-days), "
           "observed:419/54d@16000"),
    Option(key="target_share", group="cluster and limits", metavar="PERCENT", default="10%", parse="read_share",
           example="5%", roles=("plan", "disclosed"),
           help="share of failures after which a job restarts from the target, since local tiers are gone (strategy "
           "tiered)"),
    Option(key="preemption_notice", group="cluster and limits", metavar="DURATION", parse="read_seconds",
           example="120s", roles=("plan", "disclosed"), field="preemption_notice_seconds", unset=0.0,
           suite="strategies",
           help="time from a notice that a job will be ended until its end (requirement PREEMPT)"),
    Option(key="serving_limit", group="cluster and limits", metavar="DURATION", parse="read_seconds", example="60s",
           roles=("plan", "disclosed"), field="serving_limit_seconds", unset=0.0,
           suite="serving",
           help="time in which replicas of a serving engine must have loaded a model's weights, cold (requirement "
           "MODEL-LOAD); the load limit of the cluster where it is not given"),
    Option(key="consolidate_limit", group="cluster and limits", metavar="DURATION", default="1h", parse="read_seconds",
           example="20min", roles=("plan", "disclosed"), field="consolidate_limit_seconds",
           suite="serving",
           help="time in which one client must have read a model's weights and written them again (requirement "
           "CONSOLIDATE)"),
    Option(key="vendor_max_rate", group="cluster and limits", metavar="RATE", parse="read_ceilings",
           example="60GB/s,120GB/s", roles=("plan", "disclosed"), field="vendor_max_rates", unset=(0.0, 0.0),
           suite="scaling",
           help="what the vendor states as the maximum that the storage takes and gives: one rate for saves and loads, "
           "or one of each; from there on more clients need not get more (requirement SCALING)"),
    Option(key="loader_rate", group="cluster and limits", metavar="RATE", default="10MB/s", parse="read_loader_rate",
           example="8xresnet50", roles=("plan", "disclosed"), field="loader_bytes_per_second", suite="contention",
           help="rate at which the data loader of each host reads during saves (requirement MIXED); resnet50, "
           "cosmoflow and unet3d are MLPerf Storage's rates of one H100, 8xresnet50 is that of eight"),
    Option(key="gate_table", group="cluster and limits", metavar="NAME", default="auto", parse="read_path",
           example="posix-shared", roles=("limit", "disclosed"),
           help=f"gate table that sets which requirements are mandatory, and their limits: {', '.join(GATE_TABLES)}, "
           "or a TOML file that extends one of them; auto: by the kind of the target"),
    Option(key="waivers", group="cluster and limits", metavar="FILE", parse="read_path", example="waivers.toml",
           roles=("disclosed",),
           help="a TOML file of waivers, each with requirement, subject, reason and expiry date; a run with a waived "
           "mandatory requirement is not certified"),
    Option(key="model", group="workload", metavar="NAMES", default="all", parse="read_models",
           example="llama3-8b,llama3-70b", roles=("plan", "disclosed"), field="models",
           help="models whose checkpoints are saved and loaded, separated by commas, such as llama3-8b,llama3-70b; "
           "files describe other models: ./my-model.toml, or a config.json of Hugging Face"),
    Option(key="parallel", group="workload", metavar="LIST", parse="read_parallel",
           example="tp=8,pp=4,ep=1,dp=2,zero=1", roles=("plan", "disclosed"), field="-",
           help="how training cuts the models that files describe: tensor, pipeline, expert and data parallelism, ZeRO "
           "stage (3: fully sharded); in place of what a file says"),
    Option(key="mode", group="workload", metavar="MODE", default="auto", parse="read_mode", example="full",
           roles=("plan", "disclosed"),
           help="full: all ranks of the layout; subset: its ranks 0 to 7, one node; open: as many ranks as "
           "--ckpt-ranks; auto: full where there are enough processes, else subset on a local file system"),
    Option(key="engine", group="workload", metavar="NAME", default=DEFAULT.name, parse="read_engines",
           example="stream", roles=("plan", "condition", "disclosed"), field="engines",
           help="how bytes get to the storage, several separated by commas: "
           + ", ".join(f"{engine.name} ({engine.help})" for engine in BUILT_IN)),
    Option(key="replay_file", group="workload", metavar="FILE", parse="read_path", example="job.pattern.json",
           field="-", roles=("plan", "condition", "disclosed"),
           help="what --ckpt-engine=replay replays: a file of pytest-ckpt record, or a shipped one such as dcp"),
    Option(key="replay_timing", group="workload", metavar="PACE", parse="read_pace", example=PACES[1],
           unset=PACES[0], field="-", roles=("plan", "condition", "disclosed"),
           help="asap, where nothing is said: --ckpt-engine=replay makes each call when the one before has ended; "
           "recorded: after the pause that the job made there"),
    Option(key="strategy", group="workload", metavar="NAMES", default=STRATEGIES[0].name, parse="read_strategies",
           example="sync,async", roles=("plan", "disclosed"), field="strategies",
           help="when a job may go on while it saves, several separated by commas: "
           + ", ".join(f"{strategy.name} ({strategy.help})" for strategy in STRATEGIES)),
    Option(key="step_seconds", group="workload", metavar="DURATION", default="50ms", parse="read_step",
           example="1s", roles=("plan", "disclosed"),
           help="how long a step of the stand-in for training lasts that goes on beside saves of a strategy that does "
           "not block"),
    Option(key="step_cpu", group="workload", metavar="PERCENT", default="10%", parse="read_share",
           example="20%", roles=("plan", "disclosed"),
           help="share of such a step in which each rank's core works; for the rest it waits, as for an accelerator"),
    Option(key="full_every", group="workload", metavar="N", default="10", parse="read_full_every", example="5",
           roles=("plan", "disclosed"),
           help="every N-th save is a full one where a strategy saves deltas between them; every save of the run but "
           "the first is a delta where it has fewer"),
    Option(key="changed_pages", group="workload", metavar="PERCENT", parse="read_changed", example="10%",
           roles=("plan", "disclosed"), unset=0.0,
           help="share of the pages that change between two checkpoints, from 1 %, which strategies incremental and "
           "hybrid need: dense training changes all of them, sparse experts, adapters and frozen layers about 10 %"),
    Option(key="compress", group="workload", metavar="CODEC", parse="read_codec", example="lz4",
           roles=("plan", "condition", "disclosed"), unset="zstd:1",
           help="codec and level by which strategy compressed compresses: zstd:1, where nothing is said, to zstd:22, "
           "lz4:0 to lz4:12"),
    Option(key="drain_every", group="workload", metavar="N", default="10", parse="read_number", example="5",
           roles=("plan", "disclosed"),
           help="every N-th save is drained from the local tier to the target (strategy tiered); all saves of the run "
           "are such saves"),
    Option(key="profile", group="workload", metavar="NAME", default="acceptance", parse="read_profile",
           example="nightly", roles=("plan", "disclosed"),
           help="acceptance: full size, 10 saves and 10 loads; nightly: 1/100 of the size, 10 and 10; "
           "smoke: 1/1000, 3 and 3"),
    Option(key="scale", group="workload", metavar="FRACTION", parse="read_scale", example="1/50",
           roles=("plan", "disclosed"),
           help="share of the full size, in place of the profile's; a run below 1 is a rehearsal"),
    Option(key="operations", group="workload", metavar="N", parse="read_operations", example="300",
           roles=("plan", "disclosed"),
           help="number of saves and of loads, in place of the profile's; a run with fewer than 10 is a rehearsal"),
    Option(key="confidence", group="workload", metavar="CONFIDENCE/SHARE", parse="read_assurance", example="95/99",
           roles=("plan", "disclosed"), field="assurance",
           help="confidence and share of saves and loads within the limit, in percent: plans as many as show it if all "
           "meet the limit and are independent (95/95: 59, 95/99: 299), in place of the profile's"),
    Option(key="keep_last", group="workload", metavar="K", parse="read_operations", example="2",
           roles=("plan", "condition", "disclosed"), unset=0,
           help="keep only the newest K checkpoints; loads cycle over them, with caches dropped before each "
           "(requirement RETENTION)"),
    Option(key="data_pairs", group="workload", metavar="N", parse="read_operations", example="3",
           roles=("plan", "disclosed"), unset=0,
           help="compare N saves and loads of constant data with N of unique data (requirement DATA)"),
    Option(key="duration", group="workload", metavar="DURATION", parse="read_days", example="4h",
           roles=("plan", "disclosed"), field="duration_seconds", unset=0.0,
           suite="endurance",
           help="how long the endurance suite saves in a cycle, such as 4h and up to 30d (requirement ENDURE)"),
    Option(key="near_full", group="workload", default="off", parse="read_switch", example="on",
           roles=("plan", "disclosed"), is_flag=True,
           suite="endurance",
           help="let the endurance suite fill the target's volume to 80 and 90 % with ballast, which is removed "
           "(requirement NEARFULL); refused where the volume holds other data"),
    Option(key="serving_readers", group="workload", metavar="N", default="8", parse="read_number", example="16",
           roles=("plan", "disclosed"),
           suite="serving",
           help="ranks that load one replica of the weights together, each its part of every file (suite serving); as "
           "many replicas load at once as there are such groups of ranks"),
    Option(key="suite", group="checks", metavar="NAMES", default="auto", parse="read_suites",
           example="performance,conformance", roles=("plan", "disclosed"), field="suites",
           help="suites to run, separated by commas: performance, strategies, contention, conformance, endurance, "
           "failover, maintenance, serving, scaling, all; auto: those with mandatory requirements. A mandatory "
           "requirement of another suite counts as not run"),
    Option(key="second_mount", group="checks", metavar="PATH", parse="read_path", example="/mnt/array-again/ckpt",
           roles=("plan", "disclosed"),
           help="path of the target through a second mount on this host, which acts as a second client"),
    Option(key="client_cache", group="checks", metavar="SIZE", parse="read_cache_size", example="none",
           roles=("plan", "disclosed"), field="client_cache_bytes",
           help="size of the caches that the storage's client keeps on disks of each host, none where it has no such; "
           "where the kernel shows no cache, COLD may then rest on the volume that was moved"),
    Option(key="small_volume", group="checks", metavar="PATH", parse="read_path", example="/mnt/array-small",
           roles=("plan", "disclosed"),
           help="directory on the same storage, on a volume or quota of its own that may be filled for a moment"),
    Option(key="power_cut", group="checks", metavar="COMMAND", parse="read_command",
           example="/usr/local/sbin/pull-the-plug --and-wait", roles=("plan", "disclosed"),
           help="command that cuts the power of the storage and returns when it is back; run on this host without a "
           "shell"),
    Option(key="power_cuts", group="checks", metavar="N", default="3", parse="read_cuts", example="10",
           roles=("disclosed",),
           help="number of power cuts; if N lose nothing, at most 1 - 0.05^(1/N) of power cuts lose anything (95 % "
           "confidence): 63 % for 3, 5 % for 59"),
    Option(key="fault_command", group="checks", metavar="COMMAND", parse="read_command",
           example="ssh array-admin fail-drive 7", roles=("plan", "disclosed"), field="fault_command",
           help="command that breaks a component of the storage; run on this host without a shell, at random moments "
           "of saves and loads of their own (requirement FAILOVER); needs --ckpt-repair-command"),
    Option(key="repair_command", group="checks", metavar="COMMAND", parse="read_command",
           example="ssh array-admin replace-drive 7", roles=("plan", "disclosed"), field="repair_command",
           help="command that repairs what --ckpt-fault-command broke; run after each fault, also when the run ends "
           "early"),
    Option(key="upgrade_command", group="checks", metavar="COMMAND", parse="read_command",
           example="ssh array-admin rolling-restart --wait",
           roles=("plan", "disclosed"), field="upgrade_command",
           help="command that restarts or upgrades the storage while it serves, and returns when that is done; run "
           "once on this host without a shell, beside saves and loads of their own (requirement UPGRADE)"),
    Option(key="snapshot", group="checks", metavar="COMMAND", parse="read_command",
           example="/usr/local/sbin/snapshot-and-mount", roles=("plan", "disclosed"), field="snapshot_command",
           help="command that takes a snapshot of the target and prints, as its last line, the directory in which each "
           "host sees what --ckpt-target held; run on this host without a shell, in the middle of saves of their own "
           "(requirement SNAPSHOT); needs --ckpt-remove-snapshot"),
    Option(key="remove_snapshot", group="checks", metavar="COMMAND", parse="read_command",
           example="/usr/local/sbin/unmount-and-delete",
           roles=("plan", "disclosed"), field="remove_snapshot_command",
           help="command that removes a snapshot of --ckpt-snapshot (last argument: its directory); run after each "
           "one, also when the run ends early"),
    Option(key="resume", group="evidence", default="off", parse="read_switch", example="on", roles=(), is_flag=True,
           help="continue the run of --ckpt-report after a crash, a kill or a reboot, or with more suites: complete "
           "measurements under the same conditions are kept"),
    Option(key="report", group="evidence", metavar="DIRECTORY", default="ckpt-report", parse="read_path",
           example="/srv/acceptance/ckpt-report", roles=(),
           help="directory for certificate, report and all evidence"),
    Option(key="system", group="evidence", metavar="FILE", parse="read_path", example="system.toml", roles=(),
           help="a TOML file that describes the system under test (template: pytest-ckpt doctor --write-system FILE)"),
    Option(key="require_system", group="evidence", default="off", parse="read_switch", example="on", roles=(),
           is_flag=True,
           help="refuse to run where --ckpt-system does not tell what a reader of the certificate cannot do without"),
    Option(key="pdf", group="evidence", default="off", parse="read_switch", example="on", roles=(), is_flag=True,
           help="also write the certificate as certificate.pdf; needs the extra: pip install 'pytest-ckpt[pdf]'"),
    Option(key="sign", group="evidence", metavar="KEY", parse="read_path", example="key.pem", roles=(),
           help="private key (Ed25519, PEM) that signs report and manifest at the end of the run"),
    Option(key="history", group="evidence", metavar="DIRECTORY", parse="read_path", example="/var/lib/ckpt", roles=(),
           help="directory that keeps this run with others, for pytest-ckpt trend"),
    Option(key="config", group="advanced", metavar="FILE", parse="read_path", example="nightly.toml", roles=(),
           field="-",
           help="a TOML file with any of these options, such as ckpt_save_budget = \"3%\""),
    Option(key="drop_caches", group="advanced", metavar="HOW", default="auto", parse="read_command",
           example="sudo /usr/local/sbin/drop-caches", roles=("condition", "disclosed"),
           help="auto, never, or a command that drops the page cache; run on every host without a shell"),
    Option(key="io_timeout", group="advanced", metavar="DURATION", default="300s", parse="read_seconds",
           example="10min", field="io_timeout_seconds", roles=("disclosed",),
           help="how long a rank may be silent or make no progress before it counts as hung; a save or load of a rank "
           "that would take 50 times as long, and 10 times its limit, is ended too"),
    Option(key="io_size", group="advanced", metavar="SIZE", default="4MiB", parse="read_request", example="8MiB",
           roles=("condition", "disclosed"), field="io_size_bytes",
           help="request size of engine stream, and of drains from a local tier"),
    Option(key="io_depth", group="advanced", metavar="N", default="2", parse="read_depth", example="4",
           roles=("condition", "disclosed"),
           help="requests in flight per rank of engine stream, and of drains from a local tier"),
    Option(key="compressible", group="advanced", metavar="FRACTION", parse="read_share", example="30%",
           roles=("plan", "condition", "disclosed"), unset=0.0,
           help="share of zeros in every page, which shows an array's data reduction; the run is then a rehearsal"),
    Option(key="seed", group="advanced", metavar="N", parse="read_seed", example="42", roles=("disclosed",),
           help="seed of the content of the checkpoints; random by default, and always reported"),
    Option(key="keep_files", group="advanced", default="off", parse="read_switch", example="on",
           roles=("plan", "disclosed"),
           is_flag=True,
           help="leave the checkpoints on the target"),
)  # fmt: skip
"""Every option. A finished run lists them in this order."""


def with_role(role: Role) -> tuple[Option, ...]:
    """Return the options that have a role."""
    return tuple(option for option in OPTIONS if role in option.roles)


def declaration(option: Option) -> dict[str, Any]:
    """Return how argparse declares an option: the keywords of ``add_argument``."""
    default = f" (default: {option.default})" if option.default else ""
    words: dict[str, Any] = {"dest": option.ini_name, "help": (option.help + default).replace("%", "%%")}
    return words | ({"action": "store_const", "const": "on"} if option.is_flag else {"metavar": option.metavar})
