"""The lives of observations that expire: reading extends them, and some become permanent."""
