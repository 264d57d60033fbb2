"""Amounts of data and permitted times: pure functions of a cluster and a model."""
