"""Runs of the steward, and the timeline of its jobs."""
