"""Many searches of one scope at once, by words: each statement of a search once, for all of them."""
