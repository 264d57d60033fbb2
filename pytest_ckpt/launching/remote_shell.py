"""A remote shell that quotes paths which Open MPI's launcher does not: ``python remote_shell.py HOST WORD…``.

It hands the place of its own programs to the shell of another host as it is, so that a space ends it (seen with Open
MPI 5.0.11). The environment names those places, and the shell that the user has: this program becomes it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

AGENT = "PRTE_MCA_plm_ssh_agent"
_PYTHON, _PROGRAM = "PYTEST_CKPT_PYTHON", "PYTEST_CKPT_REMOTE_SHELL"
_PLACES, _SHELL = "PYTEST_CKPT_SPACED", "PYTEST_CKPT_SHELL"
SSH = "ssh"
# The launcher splits its agent at spaces, and at nothing else: what holds a space comes from the environment.
_OURS = f'sh -c exec\t"${_PYTHON}"\t-I\t-S\t"${_PROGRAM}"\t"$0"\t"$@"'


def spaced(program: str) -> list[str]:
    """Return the places of an installation that hold a space, by one of its programs; longer ones first."""
    folders = {str(path.parent.parent) for path in (Path(program), Path(program).resolve())}
    return sorted((folder for folder in folders if re.search(r"\s", folder)), key=lambda folder: (-len(folder), folder))


def asking_for_quotes(places: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return what is added to the environment of a launcher so that it uses this remote shell."""
    return {
        AGENT: _OURS,
        # Other hosts would start hosts themselves, and know nothing of this.
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        _PYTHON: sys.executable,
        _PROGRAM: __file__,
        _PLACES: json.dumps(list(places)),
        _SHELL: environment.get(AGENT, SSH),
    }


def quoted(words: Iterable[str], places: Iterable[str]) -> list[str]:
    """Return the words of a remote command with these places quoted for a shell, and without what names this program.

    A place that has a quote in front of it is quoted already.
    """
    found = list(words)
    for number in range(len(found) - 2):
        if found[number + 1] == "plm_ssh_agent":
            del found[number : number + 3]
            break
    for place in places:
        escaped = re.sub(r"([^\w@%+=:,./-])", r"\\\1", place, flags=re.ASCII).replace("\\", "\\\\")
        found = [re.sub(rf"(?<!['\"]){re.escape(place)}", escaped, word) for word in found]
    return found


def main() -> None:
    """Become the remote shell."""
    shell = shlex.split(os.environ[_SHELL])
    os.execvp(shell[0], [*shell, *quoted(sys.argv[1:], json.loads(os.environ[_PLACES]))])


if __name__ == "__main__":
    main()
