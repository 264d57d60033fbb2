"""Results of a whole run: catalogue of requirements, completeness, obstacles to a certificate, grade, report."""
