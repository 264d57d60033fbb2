"""The command ``pytest-ckpt``: one module for each subcommand, with ``HELP``, ``DESCRIPTION``, ``add_arguments`` and
``run``.
"""
