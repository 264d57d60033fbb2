"""The command ``pytest-ckpt``, with one module for each subcommand.

Each module has ``HELP``, ``DESCRIPTION``, ``add_arguments`` and ``run``. ``run`` performs the subcommand and returns
the exit code of the process.
"""
