"""Engine ``megatron``: distributed checkpoints as Megatron writes them."""
