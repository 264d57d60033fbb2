"""Reads published results of MLPerf Storage's tools (DLIO, mlpstorage), and judges them by the limits of a cluster."""
