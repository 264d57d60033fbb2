"""Engine ``stream``: direct I/O from small buffers, with its containers, buffers and threads."""
