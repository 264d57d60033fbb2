"""The run as a whole: the catalogue of all requirements, what a complete run is, obstacles, the grade, the report."""
