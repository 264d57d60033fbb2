"""From what strace says of a job to a pattern of its saves."""
