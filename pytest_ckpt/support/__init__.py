"""Ground that every room stands on: units, errors, files of the package, processes, secrets."""
