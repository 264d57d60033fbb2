"""Engine replay: the calls of a recorded job, with content that can be verified."""
