"""The code of the process on each rank; the only package that imports mpi4py."""
