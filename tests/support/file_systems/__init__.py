"""Real file systems for tests. Each is mounted in its own namespaces, which end when one process is killed."""
