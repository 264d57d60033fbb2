"""What is demanded of the storage, and the pure functions that decide whether a measurement meets it."""
