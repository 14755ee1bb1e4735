"""What the code of a clone no longer says: which files its commits removed, moved and changed."""
