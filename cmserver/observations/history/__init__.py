"""The changes of observations: what each was before, so that it can be read and undone."""
