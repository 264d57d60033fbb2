"""Checks of a target's behaviour: one process per check, so that a call that never returns blocks only that check."""
