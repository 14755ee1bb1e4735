"""What the steward derived, or would have."""
