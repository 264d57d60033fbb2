"""The only package that uses pytest: pytest's hooks, the fixtures, the vendor hooks and the verdict collector."""
