"""What a person wants remembered for themselves: theirs in all projects of the team, and read by nobody else of it."""
