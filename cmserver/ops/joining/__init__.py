"""Joins two projects that turn out to be one, and separates them again."""
