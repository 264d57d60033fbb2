"""Engine ``stream``: direct requests from small buffers; brings its containers, buffers, threads."""
