"""``python -m pytest_ckpt.conformance CHECK --directory=PATH``: run one check and print its observation."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import os
import shlex
import shutil
import sys
import tempfile
import traceback
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.client import AGENT, Client
from pytest_ckpt.conformance.context import CheckContext, Findings
from pytest_ckpt.conformance.process import CallReporter, exit_code, observe, parser_of, run, show
from pytest_ckpt.facts.checks import BY_NAME
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.targets.posix.commit import COMMITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.checks import Check

# If a rename takes 6 ms, 10,000 renames take a minute.
_RACE_SECONDS, _SHORTEST_RACE_SECONDS = 600.0, 60.0


def main() -> int:
    """Perform the check. Return 0 without an anomaly, 1 with an anomaly, 8 if a prerequisite is missing.

    An internal error raises an exception. `run` turns the exception into exit code 3, which is never a result of the
    target.
    """
    args = _parser().parse_args()
    check = BY_NAME[args.check]
    base = Path(args.directory).absolute()
    # A killed check leaves its witness directory behind. So one is created only if the check needs it and the caller
    # passes no path.
    with _witness(args) as witness:
        directory = base / f"{check.name}-{os.getpid()}"
        small = Path(args.small_directory).absolute() / f"small-{directory.name}" if args.small_directory else None
        bases = [path.parent for path in (directory, small) if path] if args.make_directory else []
        refused = _creation_error([path for path in (*bases, directory, small) if path], bases)
        other = None
        if args.second_directory:
            first, _, last = (args.second_ports or "").partition("-")
            ports = (int(first), int(last)) if args.second_ports else None
            words = shlex.split(args.second_command) if args.second_command else AGENT
            other = Client(words, report_call=_report_call, ports=ports)
        context = CheckContext(
            directory=directory,
            witness=Path(witness) if witness else None,
            seed=args.seed,
            share=args.share,
            report_call=_report_call,
            other=other,
            other_directory=str(Path(args.second_directory) / directory.name) if args.second_directory else None,
            power_cut=tuple(shlex.split(args.power_cut or "")),
            power_cuts=args.power_cuts,
            small_directory=small,
            patience_seconds=args.patience,
            space_seconds=args.space_seconds,
            race_seconds=max(_SHORTEST_RACE_SECONDS, _RACE_SECONDS * args.share),
            commit=COMMITS[args.commit],
        )
        try:
            seen = _refused(check, refused) if refused else make(check, context)
            # Print the result before the removal: on a target that hangs, the removal hangs too.
            show(check, seen, as_json=args.json)
        finally:
            if other:
                other.close()
            for made in (directory, small):
                if made and not args.keep:
                    _report_call("remove", str(made))
                    shutil.rmtree(made, ignore_errors=True)
    return exit_code(seen)


def _witness(args: argparse.Namespace) -> AbstractContextManager[str | None]:
    if args.witness or not args.power_cut:
        return nullcontext(args.witness)
    return tempfile.TemporaryDirectory(prefix="pytest-ckpt-witness-")


def _creation_error(directories: Sequence[Path], bases: Sequence[Path]) -> OSError | None:
    """Create ``directories``. Return the error of the first directory that cannot be created, otherwise None.

    ``bases`` are directories that several checks of a run share, and that may exist already. Outside a run, ``bases``
    is empty. In a run, the error of a missing parent directory is returned, because the parent existed when the run
    began. Outside a run, a missing parent directory raises FileNotFoundError, because the user may have named a wrong
    directory.
    """
    for directory in directories:
        _report_call("mkdir", str(directory))
        try:
            directory.mkdir(exist_ok=directory in bases)
        except FileNotFoundError as error:
            if not bases:
                raise
            return error
        except OSError as error:
            return error
    return None


def _refused(check: Check, error: OSError) -> Observation:
    findings = Findings(unit=check.unit)
    seen = f"{error.strerror} (errno {error.errno}) from: mkdir"
    findings.wrong("a call failed", where=str(error.filename), seen=seen, expected="no error")
    return findings.observation(check.requirement, check.subject, errno=_name_of(error))


def _name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "")


def make(check: Check, context: CheckContext) -> Observation:
    """Perform a check and return its observation. An unexpected OSError of a call is an anomaly."""
    findings = Findings(unit=check.unit)
    last_path = str(context.directory)

    def report_call(call: str, path: str) -> None:
        nonlocal last_path
        last_path = path
        context.report_call(call, path)

    def failed(error: OSError) -> str:
        frames = reversed(traceback.extract_tb(error.__traceback__))
        call = next((frame.line or "" for frame in frames if "conformance" in frame.filename), "")
        findings.wrong(
            "a call failed",
            # A call on a descriptor has no path in its error.
            where=str(error.filename or last_path),
            seen=f"{error.strerror} (errno {error.errno}) from: {call}",
            expected="no error",
        )
        return _name_of(error)

    return observe(check, dataclasses.replace(context, report_call=report_call), findings, failed)


_report_call = CallReporter()


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("posix", "pytest_ckpt.conformance", __doc__)
    parser.add_argument(
        "--directory", required=True, help="a directory on the target; the check works in a new one below it"
    )
    parser.add_argument("--second-directory", help="path of that directory on the second client")
    parser.add_argument(
        "--second-command", help="command that starts the second client's agent (default: on this host)"
    )
    parser.add_argument("--second-ports", help="range of ports for the agent's connection, such as 20000-20100")
    parser.add_argument(
        "--small-directory", help="a directory on a volume or quota of the same storage that may be filled"
    )
    parser.add_argument(
        "--power-cut", metavar="COMMAND", help="cuts the power of the target, and returns when it is restored"
    )
    parser.add_argument("--power-cuts", type=int, default=3, help="how often the power is cut")
    parser.add_argument("--witness", help="a directory that is not on the target")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds after which a call counts as hung")
    parser.add_argument(
        "--space-seconds",
        type=float,
        default=60.0,
        help="seconds within which a change of the free space must be visible",
    )
    parser.add_argument(
        "--commit",
        choices=COMMITS,
        default="rename",
        help="how checkpoints are committed: by the rename of a directory, or by a marker file if this is refused",
    )
    parser.add_argument("--keep", action="store_true", help="leave the check's directory on the target")
    parser.add_argument(
        "--make-directory", action="store_true", help="also create the directories that the options name"
    )
    return parser


if __name__ == "__main__":
    sys.exit(run(main))
