"""When a job may go on while a checkpoint is saved: one strategy a module behind one protocol."""
