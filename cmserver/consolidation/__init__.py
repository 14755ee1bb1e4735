"""Keeps what is remembered from repeating itself: merges observations that say the same, suggests merging, and relates them."""
