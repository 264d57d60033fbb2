"""When a job may continue while a checkpoint is saved: strategies with a common protocol."""
