"""The user's input: options, gate tables, waivers, the description of the system."""
