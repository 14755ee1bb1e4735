"""Reads one tool call of any coding agent: what kind of tool it is, and which files, command or patch it names."""
