"""Files of any engine, compressed on their way to storage and back."""
