"""Engine dcp: torch.distributed.checkpoint, as its library saves and loads."""
