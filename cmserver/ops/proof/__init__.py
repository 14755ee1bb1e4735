"""What telling is good for: sessions that were told compared with sessions that were told nothing."""
