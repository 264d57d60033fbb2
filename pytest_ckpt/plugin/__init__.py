"""The integration with pytest; no other package imports pytest.

It contains pytest's hooks, the fixtures, the hooks for vendors' plugins, and the collector of verdicts.
"""
