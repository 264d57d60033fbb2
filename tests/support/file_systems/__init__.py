"""Real file systems for tests. Each file system is mounted in its own namespaces.

The namespaces end when their first process is killed.
"""
