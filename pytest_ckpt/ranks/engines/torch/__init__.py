"""Engine ``torch``: torch.save and torch.load, the state in memory."""
