"""What a skip rule that is law has to look like. What it forbids is decided where events are worked on."""

from __future__ import annotations

import re

from cmserver.access.model import LAWS

_CHAIN = re.compile(r"[;|&<>\n]")


def malformed(rule: str) -> str | None:
    """What is wrong with the rule, in a sentence; None when it can be followed, or is a sentence for the model."""
    law = next((law for law in LAWS if rule.startswith(law)), None)
    if law is None:
        return None
    said = rule.removeprefix(law).strip()
    if not said.strip("/."):
        return f"What is to be skipped stands behind {law}"
    if law == "path:" and said.startswith("!"):
        return "A path rule says what is skipped; there are no exceptions with `!`."
    if law == "path:" and ".." in said.replace("\\", "/").split("/"):
        return "A path rule begins at the project's folder and cannot leave it with `..`."
    if law == "command:" and _CHAIN.search(said):
        return "A command rule is how one command begins; each command of a chain is looked at by itself."
    return None
