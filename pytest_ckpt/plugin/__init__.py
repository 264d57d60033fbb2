"""The integration with pytest; no other package of pytest-ckpt imports pytest.

It contains pytest's hooks, the fixtures, the hooks for vendors' plugins, and the collector of verdicts.
"""
