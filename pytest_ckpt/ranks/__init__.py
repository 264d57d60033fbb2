"""The process on each rank; the only part that imports mpi4py."""
