"""Records that several packages share: frozen dataclasses, and their JSON form."""
