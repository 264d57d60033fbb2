"""The measurements in addition to plain saves and loads, one module for each."""
