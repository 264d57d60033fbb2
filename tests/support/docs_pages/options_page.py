"""Writes what in docs/options.md follows from the table of options: ``python -m`` this module."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.config.options import LIMITS, OPTIONS, Option, resolve
from pytest_ckpt.evidence.history import _CONDITIONS
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.grading import disclosures
from tests.support import CHECKOUT

PAGE = CHECKOUT / "docs" / "options.md"
BEGIN, END = "<!-- from the table of options: begin -->\n", "<!-- from the table of options: end -->\n"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Options of one subject, each with a value as one would write it."""

    title: str
    text: str
    examples: dict[str, str]


GROUPS = (
    Group(
        title="What is asked for",
        text="The first two are all that a run needs. The others are the buyer's terms; [limits.md](limits.md) derives "
        "the limits from them.",
        examples={
            "target": "/mnt/array/ckpt",
            "cluster": "16000",
            "overhead": "3%",
            "restore_budget": "0.5%",
            "checkpoints_per_failure": "30",
            "failures": "observed:419/54d@16000",
        },
    ),
    Group(
        title="How much is run",
        text="With the profile `acceptance` and without the others, a run can be certified. [workload.md](workload.md) "
        "says what the models and modes are.",
        examples={
            "profile": "nightly",
            "scale": "1/50",
            "operations": "20",
            "model": "llama3-8b,llama3-70b",
            "mode": "full",
        },
    ),
    Group(
        title="Which requirements",
        text="[requirements.md](requirements.md) has all of them, [conformance.md](conformance.md) the tables of "
        "gates, [contract.md](contract.md#waivers) how a waiver is written.",
        examples={
            "suite": "performance,conformance",
            "gates": "posix-shared",
            "waive": "waivers.toml",
            "retain": "2",
            "data_pairs": "3",
            "duration": "4h",
            "near_full": "on",
        },
    ),
    Group(
        title="Where the ranks run",
        text="[several_hosts.md](several_hosts.md) shows them at work.",
        examples={
            "processes": "64",
            "hosts": "node1:8,node2:8",
            "launcher": "srun --mpi=pmix --input=0 --nodelist={nodes}",
            "deadline": "10min",
        },
    ),
    Group(
        title="How bytes go to the storage",
        text="",
        examples={
            "engine": "stream",
            "request": "8MiB",
            "depth": "4",
            "drop_caches": "sudo /usr/local/sbin/drop-caches",
            "compressible": "30%",
            "seed": "42",
            "keep": "on",
        },
    ),
    Group(
        title="What behaviour is asked with",
        text="Without these some checks cannot be made; on shared storage they are required.",
        examples={
            "second_mount": "/mnt/array-again/ckpt",
            "full_target": "/mnt/array-small",
            "power_cut": "/usr/local/sbin/pull-the-plug --and-wait",
            "power_cuts": "10",
        },
    ),
    Group(
        title="What is written",
        text="[evidence.md](evidence.md) shows what each is for.",
        examples={
            "report": "/srv/acceptance/ckpt-report",
            "system": "system.toml",
            "pdf": "on",
            "sign": "key.pem",
            "history": "/var/lib/ckpt",
        },
    ),
    Group(
        title="Options from a file",
        text="",
        examples={"config": "nightly.toml"},
    ),
)


def with_options(page: str) -> str:
    """Return the page with the part between the marks made anew."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n" + from_the_table() + END + after


def from_the_table() -> str:
    """Return every option by group, and one file that sets them all."""
    by_key = {option.key: option for option in OPTIONS}
    lines: list[str] = []
    for group in GROUPS:
        lines += [f"## {group.title}", ""] + ([group.text, ""] if group.text else [])
        for key in group.examples:
            lines += _described(by_key[key], group.examples[key])
    lines += ["## All of them in one file", ""]
    lines += ["Each value is an example, not advice: such a file holds what differs from the defaults.", "", "```toml"]
    lines += [_toml(by_key[key], example) for g in GROUPS for key, example in g.examples.items() if key != "config"]
    return "\n".join([*lines, "```", ""])


def _described(option: Option, example: str) -> list[str]:
    name = f"`{' '.join(filter(None, [option.flags[0], option.metavar]))}`"
    lines = [f"### `{option.flag}`", "", f"{name} – {option.help}.", ""]
    if option.aliases:
        lines.append(f"- Also written: `{option.flag}`")
    lines.append(f"- Default: {f'`{option.default}`' if option.default else 'none'}")
    toml = f", `{_toml(option, example)}` (TOML)" if option.key != "config" else ""
    lines.append(f"- In a file: `{option.ini_name} = {example}` (ini){toml}")
    also = []
    if is_disclosed(option, example):
        also.append("Another value than the default stands among the disclosures of the certificate.")
    if option in LIMITS:
        also.append("`pytest-ckpt judge` takes it too: a run that is over can be judged again with another value.")
    if option.flag in _CONDITIONS:
        also.append("A trend compares only runs with the same value.")
    return [*lines, *(f"- {sentence}" for sentence in also), ""]


def is_disclosed(option: Option, example: str) -> bool:
    """Whether a certificate names this option among its disclosures when it was given: asked of what writes them."""
    if option.key == "config":
        return False
    settings = resolve({option.ini_name: example}, {})
    return any(line.startswith(f"{option.flag} ") for line in disclosures(settings, Gates(name="", text="")))


def _toml(option: Option, example: str) -> str:
    if option.is_flag:
        return f"{option.ini_name} = true"
    return f"{option.ini_name} = {example}" if example.isdigit() else f'{option.ini_name} = "{example}"'


if __name__ == "__main__":
    PAGE.write_text(with_options(PAGE.read_text()))
