"""How bytes get to storage and back: engines with a common protocol."""
