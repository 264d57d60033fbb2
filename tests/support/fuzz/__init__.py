"""Fuzzers of the commands' inputs. Each generated attack has a name from which it can be repeated."""
