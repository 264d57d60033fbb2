"""Real file systems to run on, each mounted in namespaces of its own, so that killing one process ends all of it."""
