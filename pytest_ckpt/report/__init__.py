"""Writers of reports: HTML, PDF, JUnit, terminal, live metrics, and the texts of plans and patterns."""
