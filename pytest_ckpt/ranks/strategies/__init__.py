"""When a job may go on while a checkpoint is saved: strategies behind one protocol."""
