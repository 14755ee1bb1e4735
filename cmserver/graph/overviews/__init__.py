"""One page about each project, made of what is remembered."""
