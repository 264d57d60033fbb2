"""A mounted file system as a target."""
