"""The acceptance tests, one per requirement. The docstring of a test is the text of its requirement in the report."""
