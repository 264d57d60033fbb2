"""The acceptance tests: one requirement, one test; its docstring is the requirement's text in the report."""
