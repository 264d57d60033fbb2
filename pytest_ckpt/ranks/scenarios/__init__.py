"""What a run measures beside plain saves and loads."""
