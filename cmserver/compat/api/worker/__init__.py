"""The routes of claude-mem's worker, which its hooks, its tools and its viewer call."""
