"""How bytes get to storage and back: one engine a package behind one protocol."""
