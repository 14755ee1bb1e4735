"""What an agent's event says happened. Pure: it knows no provider, no prompt and no database."""
