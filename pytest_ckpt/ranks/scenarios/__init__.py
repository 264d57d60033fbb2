"""The measurements of a run in addition to plain saves and loads."""
