"""Runs stored events again, by today's rules or by a model, and says what would be remembered otherwise."""
