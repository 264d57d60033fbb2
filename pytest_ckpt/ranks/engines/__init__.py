"""How bytes get to storage and back: engines behind one protocol."""
