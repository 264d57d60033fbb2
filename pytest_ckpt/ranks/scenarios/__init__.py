"""The scenarios: measurements in addition to a subject's own saves and loads, one module for each."""
