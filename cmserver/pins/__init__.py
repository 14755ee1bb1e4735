"""What a team's memory must answer, and whether it does."""
