"""The only package that uses pytest: its hooks, fixtures of the suites, hooks of vendors, the collector of verdicts."""
