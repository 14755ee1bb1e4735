"""The pages, one file per area of the navigation."""
