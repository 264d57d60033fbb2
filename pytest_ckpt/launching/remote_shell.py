"""A remote shell for Open MPI's launcher, for hosts whose users have different login shells.

Called as ``python remote_shell.py HOST WORD…``. The launcher writes all its commands for one kind of shell: the user's
shell on this host, or the first remote shell that it detects (observed with Open MPI 5.0.11). This program reports sh
as the shell to the launcher. It passes each command as one quoted argument to sh on the host; every login shell
forwards this argument unchanged.

The launcher also passes the paths of its own programs unquoted. This program quotes paths that contain white space. The
environment contains these paths and the command of the user's own remote shell. This program executes that command.
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
_ASKED, _ANSWER = "echo $SHELL", "/bin/sh"
# The launcher splits its agent only at spaces, so words that contain a space are passed in the environment.
_OURS = f'sh -c exec\t"${_PYTHON}"\t-I\t-S\t"${_PROGRAM}"\t"$0"\t"$@"'


def spaced(program: str) -> list[str]:
    """Return the launcher's installation directories whose path contains white space, the longest path first.

    ``program`` is the path of a program in the installation.
    """
    directories = {str(path.parent.parent) for path in (Path(program), Path(program).resolve())}
    return sorted(
        (directory for directory in directories if re.search(r"\s", directory)),
        key=lambda directory: (-len(directory), directory),
    )


def remote_shell_environment(places: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that make the launcher use this remote shell.

    ``places`` are the paths to quote. ``environment`` may name the user's own remote shell; the default is ssh.
    """
    return {
        AGENT: _OURS,
        "PRTE_MCA_plm_ssh_assume_same_shell": "0",
        # Otherwise the launcher would start hosts from other hosts, without this shell.
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        _PYTHON: sys.executable,
        _PROGRAM: __file__,
        _PLACES: json.dumps(list(places)),
        _SHELL: environment.get(AGENT, SSH),
    }


def quoted(words: Iterable[str], places: Iterable[str]) -> list[str]:
    """Return the words of a remote command, with the paths ``places`` quoted.

    A path directly after a quotation mark remains unchanged. The option that names this program is removed.
    """
    arguments = list(words)
    for number in range(len(arguments) - 2):
        if arguments[number + 1] == "plm_ssh_agent":
            del arguments[number : number + 3]
            break
    for place in places:
        escaped = re.sub(r"([^\w@%+=:,./-])", r"\\\1", place, flags=re.ASCII).replace("\\", "\\\\")
        arguments = [re.sub(rf"(?<!['\"]){re.escape(place)}", escaped, word) for word in arguments]
    return arguments


def for_sh(command: str) -> str:
    """Return a command line that runs ``command`` in sh. Every login shell forwards the command line unchanged.

    ``!`` is escaped, because csh interprets it even within quotes.
    """
    return f"{_ANSWER} -c '" + command.replace("'", r"'\''").replace("!", r"'\!'") + "'"


def main() -> None:
    """Run the launcher's command through the user's remote shell.

    If the launcher asks for the host's login shell, only print sh.
    """
    host, *command = sys.argv[1:]
    if " ".join(command) == _ASKED:
        print(_ANSWER)
        return
    shell = shlex.split(os.environ[_SHELL])
    remote_command = " ".join(quoted(command, json.loads(os.environ[_PLACES])))
    os.execvp(shell[0], [*shell, host, for_sh(remote_command)])


if __name__ == "__main__":
    main()
