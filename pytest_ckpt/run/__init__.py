"""Opens and closes a run. All checks are performed before the run is opened."""
