"""Starts processes and receives their reports: ranks, checks of behaviour, a second client."""
