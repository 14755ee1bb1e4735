"""Memory for coding agents, for small self-hosted teams, on one PostgreSQL and nothing else."""

__version__ = "0.1.0"
