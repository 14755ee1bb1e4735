"""People: the members of teams, accounts, invitations and sessions."""
