"""The rules by which the offline provider words observations: events become acts, acts become a story, the story drafts."""
