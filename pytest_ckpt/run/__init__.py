"""The life of a run: its context, how it is opened and closed, and all that is checked before."""
