"""What a user says: options, gate tables, waivers, the description of the system."""
