"""Published results of MLPerf Storage's tools (DLIO, mlpstorage): reads their files, and judges them by a cluster's
limits.
"""
