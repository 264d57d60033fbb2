"""The run as a whole: the catalogue of all requirements, completeness of a run, obstacles, the grade, the report."""
