"""The process on each rank: start, group, activity, host probe, job."""
