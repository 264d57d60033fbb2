"""Pure decisions: requirements, gates, waivers, verdicts, grades."""
