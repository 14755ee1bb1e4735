"""The web interface below `/ui`. Each page calls the same verbs as the API, with a principal of the team."""
