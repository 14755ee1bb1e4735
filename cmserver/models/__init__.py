"""Models of others: who is called, what is asked of it, what each call cost, and what calls may cost."""
