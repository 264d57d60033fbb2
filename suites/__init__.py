"""The acceptance tests, one per requirement; the docstring is the requirement's text in the report."""
