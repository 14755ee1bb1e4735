"""What observations are about: entities, their mentions and relations."""
