"""Pure statistics over times and runs."""
