"""Common code for tests of refused command lines: exit code 4, and a message instead of a traceback."""

from __future__ import annotations

import subprocess

USAGE = 4
INSIDE_MPI = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID")
SMALL = ("--ckpt-profile=smoke", "--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-ranks=2")


def is_refusal(exit_code, stderr, expected_text):
    assert exit_code == USAGE
    for word in expected_text:
        assert word in stderr
    assert "Traceback" not in stderr
    assert "INTERNALERROR" not in stderr


def succeeds(command):
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
