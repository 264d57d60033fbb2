"""The command ``pytest-ckpt``, with one module for each subcommand.

A module has ``HELP``, ``DESCRIPTION``, ``add_arguments`` and ``run``. ``run`` performs the subcommand and returns its
exit code.
"""
