"""Starts processes and listens to them: ranks, checks of behaviour, a second client."""
