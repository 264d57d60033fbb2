"""Statistics of operation times and of runs. Pure: no module reads or writes files."""
