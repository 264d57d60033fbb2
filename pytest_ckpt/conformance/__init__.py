"""Asking a target how it behaves: one check a process, so that a call that never returns holds nothing up."""
