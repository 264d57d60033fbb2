"""Engine ``stream``, which uses direct I/O from small buffers, and its files, buffers and threads."""
