"""The amounts that are written, and the permitted times: pure functions of a cluster and a model."""
