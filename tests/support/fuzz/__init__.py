"""Fuzzers of the commands' inputs. Each generated attack has a name by which it can be repeated."""
