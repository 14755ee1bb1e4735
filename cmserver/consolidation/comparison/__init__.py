"""Finds observations that say the same as a text: by the text itself, by vectors, and by words."""
