"""Fuzzers: generated attacks on the inputs of the commands; each has a name that reproduces it."""
