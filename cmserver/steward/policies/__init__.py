"""The thresholds of the steward, and their changes."""
