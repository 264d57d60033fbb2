"""Pure decisions on single requirements: gate tables, waivers, proofs and verdicts."""
