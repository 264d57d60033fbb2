"""Starts ranks, checks of behaviour and a second client as processes, and receives the reports of these processes."""
