"""Save strategies. A strategy defines when a job may continue while its checkpoint is saved."""
