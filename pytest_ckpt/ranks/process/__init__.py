"""The process of each rank: its start, its group of ranks, its activity reports, the probe of its host, its job."""
