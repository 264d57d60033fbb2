"""Starts ranks, checks of behaviour and a second client as processes, and receives their reports."""
