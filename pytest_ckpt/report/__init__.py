"""One writer a file: the report document becomes HTML, JUnit, a summary for the terminal, digests."""
