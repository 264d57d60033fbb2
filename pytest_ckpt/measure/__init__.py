"""The controller's part of a measurement: checks, launches, caches, progress, evidence."""
