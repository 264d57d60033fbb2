"""Fuzzers: made-up attacks on what the commands read, each from a name that makes it again."""
