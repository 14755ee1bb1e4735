"""What the steward can do: each executor prepares a decision, and writes it where it may."""
