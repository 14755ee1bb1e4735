"""The rules of the offline provider: tool uses become acts, acts become drafts, drafts the observations of a batch."""
