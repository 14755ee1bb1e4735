"""Calls of model providers: their records and costs, budgets, and pauses."""
