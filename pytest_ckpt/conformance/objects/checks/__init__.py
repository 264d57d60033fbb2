"""The checks, a module for each requirement or two; facts.checks has their table."""
