"""Engine ``stream``: direct requests from small buffers, with its containers, buffers and threads."""
