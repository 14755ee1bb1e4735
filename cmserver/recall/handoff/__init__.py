"""Hand-offs: one page of what a branch is at, and to whom of the team it was handed."""
