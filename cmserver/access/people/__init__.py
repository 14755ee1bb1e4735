"""People who sign in: their accounts, memberships, invitations and sessions."""
