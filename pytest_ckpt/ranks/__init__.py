"""The code that runs in the process of each rank. Only this package imports mpi4py."""
