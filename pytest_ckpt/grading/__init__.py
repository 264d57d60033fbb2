"""The run as a whole: catalogue of requirements, completeness, obstacles to a certificate, grade, report."""
