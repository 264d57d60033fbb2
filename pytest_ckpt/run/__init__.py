"""Opens and closes a run. The preflight checks the conditions of the run before the run is opened."""
