"""Time travel: what held at a moment, and what the server knew at one."""
