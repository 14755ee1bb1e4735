"""The sentences of turns that say most: chosen at a turn's end, embedded, and looked for on a prompt."""
