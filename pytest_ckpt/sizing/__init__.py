"""Sizes and time limits: pure functions of a cluster and a model."""
