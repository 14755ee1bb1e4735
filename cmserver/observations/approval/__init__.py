"""Rules that a model or an agent's tool wrote, in a team that lets them count only after a person's yes."""
