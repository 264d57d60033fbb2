"""The records that all packages share, as frozen dataclasses, and their JSON form."""
