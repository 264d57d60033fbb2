"""Save strategies, with a common protocol: when a job may continue while a checkpoint is saved."""
