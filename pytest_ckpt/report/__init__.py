"""Writers of reports, one per file: HTML, JUnit, terminal summary, digests."""
