"""The commands of ``pytest-ckpt``, one module each, with ``HELP``, ``DESCRIPTION``, ``add_arguments`` and ``run``."""
