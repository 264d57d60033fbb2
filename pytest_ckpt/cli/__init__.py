"""The command ``pytest-ckpt``: one module a word, with ``HELP``, ``DESCRIPTION``, ``add_arguments`` and ``run``."""
