"""All that knows pytest: its hooks, the fixtures of the suites, the hooks of vendors, the collector of verdicts."""
