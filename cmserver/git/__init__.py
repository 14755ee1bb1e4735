"""What the git repository of a project tells: its history as a first memory, and what its code no longer says."""
