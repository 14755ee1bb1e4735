"""The doors: hooks of coding agents, MCP for their models, pages for people, and the paths of other systems for their clients.

Each folder is one door, and no door knows another.
"""
