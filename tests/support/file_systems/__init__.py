"""Real file systems for tests, each mounted in separate namespaces, so that killing one process ends everything."""
