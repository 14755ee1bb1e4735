"""Tells what of a prompt are the user's own words, and what is material: code, quotations, logs, pasted reports and documents."""

from __future__ import annotations

import re

from cmserver.reading.phrases import find_phrase

FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"[ \t]*(?:#{1,6} |\||>|[-=*_]{3,}\s*$)")
BULLET = re.compile(r"^[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+")
_MATERIAL_LINE = re.compile(
    r"[ \t]*(?:>|#{1,6} |\||\s+at \S+\(|File \"|\+\+\+ |--- |@@ |[\d-]{8,10}[T ]\d\d:\d\d|\$ |<[a-z][\w-]*[ >]"
    r"|(?:ERROR|WARN(?:ING)?|INFO|DEBUG|FATAL|FAILED)\b|Traceback |diff --git|npm ERR)"
)
_POINTS_AT = re.compile(
    r"\b(?:below|following|attached|unten|folgende\w*|ci-dessous|suivant\w*|abajo|siguientes?)\b", re.IGNORECASE
)


def own_words(prompt: str) -> str:
    """What of a prompt the user said, in one line; the whole where none of it is plainly theirs."""
    return " ".join(" ".join(line for block in own_blocks(prompt) for line in block).split()) or " ".join(prompt.split())


def own_blocks(prompt: str) -> list[list[str]]:
    """The lines that the user said, by paragraph: without what stands below a heading, or behind "this report:" and is longer."""
    blocks = [block for block in re.split(r"\n\s*\n", FENCED.sub("\n\n>\n\n", prompt)) if block.strip()]
    own: list[list[str]] = []
    left = sum(map(len, blocks)) + len(blocks)
    for place, block in enumerate(blocks):
        left -= len(block) + 1
        lines = block.splitlines()
        if HEADING.match(lines[0]) and (place > 0 or len(lines) > 1):
            if lines[0].lstrip().startswith("#"):
                break  # what follows a heading is a document
            continue
        kept = [line for line in lines if not _MATERIAL_LINE.match(line)]
        own.append(kept)
        is_about_more = bool(kept) and (announces(kept[-1]) or (place == 0 and _POINTS_AT.search(block) is not None))
        is_followed_by_material = place + 1 < len(blocks) and _MATERIAL_LINE.match(blocks[place + 1]) is not None
        if is_about_more and not is_followed_by_material and left - 1 > len(block):
            break
    return own


def announces(line: str) -> bool:
    """Whether the line says that something else than the user's words follows: it ends with a colon, and heads no rules."""
    return line.rstrip(" *_").endswith(":") and not is_rules_heading(line)


def is_rules_heading(line: str) -> bool:
    """Whether the line stands above a list of what the user lays down."""
    text = line.strip(" *_\t")
    return text.endswith(":") and find_phrase("rules_heading", re.split(r"[.!?] ", text)[-1]) is not None
