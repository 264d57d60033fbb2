"""Checks of a target's behaviour. Each check has its own process, so a call that hangs blocks only one check."""
