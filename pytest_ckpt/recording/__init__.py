"""From a job's strace log to a pattern of its saves."""
