"""The steward: merges, marks and derives what a team lets it, writes down each step, and takes it back on request."""
