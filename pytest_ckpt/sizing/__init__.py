"""What is written, and how long it may take: pure functions of a cluster and a model."""
