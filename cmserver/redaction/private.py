"""Finds private spans and private keys. They may be of any length, so the whole text is searched."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cmserver.redaction.rule import WINDOW, has_match, lower, scan
from cmserver.redaction.spans import CONTEXT, Span

PRIVATE = "private"
_KEY = "private_key"

# The first letter is checked first: most tags are others.
_TAG = re.compile(
    r"<(/?)(?=[cpsCPS])"
    r"((?i:private|claude-mem-context|cmserver-context|system[_-]instruction|persisted-output|system-reminder))(?=[\s/>])"
)
_TAG_END = re.compile(r"\s*+>")

# The tag as other tools write it: escaped for JSON or HTML, with spaces, or in full width. Anchored at the word, which is rare.
_ESCAPED_WORD = re.compile(r"private(?=\s{0,3}(?:>|\uff1e|\ufe65|&gt;|&#0{0,4}62;|&#x0{0,4}3e;|\\{1,4}u003e|\\{1,4}x3e|%3e))")
_ESCAPED_OPENING = re.compile(
    r"(?:<|\uff1c|\ufe64|&lt;|&#0{0,4}60;|&#x0{0,4}3c;|\\{1,4}u003c|\\{1,4}x3c|%3c)\s{0,3}(?P<closes>/?)\s{0,3}\Z"
)
_ESCAPED_CLOSING = re.compile(r"\s{0,3}(?:>|\uff1e|\ufe65|&gt;|&#0{0,4}62;|&#x0{0,4}3e;|\\{1,4}u003e|\\{1,4}x3e|%3e)")
_OPENING_CHARS = 24

_KEY_EDGE = re.compile(r"-{4,5} ?(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?(?: FILE)? ?-{4,5}")
_PUTTY_EDGE = re.compile(r"Private-Lines: \d{1,4}")
# Between the lines of a key: quotes and signs of code, escaped line breaks, marks of a diff, a mail or a comment, and line numbers,
# with the file name before them. A line number differs from the key by what follows it.
_SIGNS = r"\s\"'+,>#|*:\u2192-"
_BETWEEN = rf"(?:[{_SIGNS}]|\\+[nrt]|(?:(?<=[\n ])[\w./-]{{1,200}}-)?\d{{1,7}}(?=[ \t\u2192:|-]))"
_KEY_BODY = re.compile(rf"(?>(?:(?>{_BETWEEN}*)(?:[A-Za-z-]{{4,20}}: [^\n\\]{{1,200}}|[A-Za-z0-9/+=]{{16,}}+))*)")
_KEY_LAST_LINE = re.compile(rf"(?>{_BETWEEN}*)[A-Za-z0-9/+=]++\s*+\Z")
_KEY_RUN = re.compile(r"[A-Za-z0-9/+=]++")
_MAX_KEY_CHARS = 8 * WINDOW
"""How far a block whose beginning is missing is read back."""
# The same from right to left, for a block whose beginning is missing.
_BETWEEN_REVERSED = rf"(?:[{_SIGNS}]|[nrt]\\+|(?<=[ \t\u2192:|-])\d{{1,7}}(?![A-Za-z0-9/+=]))"
_KEY_BODY_REVERSED = re.compile(rf"(?>{_BETWEEN_REVERSED}*)[A-Za-z0-9/+=]++(?>(?:(?>{_BETWEEN_REVERSED}+)[A-Za-z0-9/+=]{{16,}}+)*)")
# At least two lines from the middle of a key, of the length that keys have.
_KEY_LINE = re.compile("\n[ \t0-9\"'+>#|:\u2192-]{0,12}+[A-Za-z0-9+/]{52}")
_KEY_LINES = re.compile(
    rf"(?>(?:(?:\A|\n)(?:[ \t]{{0,8}}\d{{0,7}}[{_SIGNS}]{{0,8}})(?:[A-Za-z0-9+/]{{70}}|[A-Za-z0-9+/]{{64}})\r?(?=\n|\Z)){{2,}})"
)


def may_be_in(text: str, low: str | None = None) -> bool:
    """Whether `find` could find something; much cheaper than `find`."""
    if "<" in text and has_match(_TAG, text):
        return True
    low = lower(text) if low is None else low
    if "private" in low and (has_match(_ESCAPED_WORD, low) or "private key" in low or "private-lines" in low):
        return True
    return has_match(_KEY_LINE, text)


def find(text: str) -> Iterator[Span]:
    """Private spans, contexts that tools inserted, and private keys; they may overlap."""
    if "<" in text:
        yield from _find_tagged(text)
    low = lower(text)
    if "private" in low:
        yield from _find_escaped(text, low)
        yield from _find_key_blocks(text)
    if has_match(_KEY_LINE, text):
        yield from _find_key_lines(text)


def _find_escaped(text: str, low: str) -> Iterator[Span]:
    """The spans between `private` tags in other spellings (escaped, spaced, full-width); any of them closes what another opened."""
    depth, start = 0, 0
    for word in scan(_ESCAPED_WORD, low):
        before = _ESCAPED_OPENING.search(low[max(0, word.start() - _OPENING_CHARS) : word.start()])
        if before is None:
            continue
        if not before["closes"]:
            if depth == 0:
                start = word.start() - len(before[0])
            depth += 1
        elif depth and (closed := _ESCAPED_CLOSING.match(low, word.end())):
            depth -= 1
            if depth == 0:
                yield Span(start, closed.end(), PRIVATE)
    if depth:
        yield Span(start, len(text), PRIVATE)


def _find_tagged(text: str) -> Iterator[Span]:
    """From an opening tag to its closing tag, or else to the end of the text."""
    inside, depth, start = "", 0, 0
    for tag in scan(_TAG, text):
        name = tag[2].lower().replace("_", "-")
        opens = not tag[1]
        if not inside:
            if opens:
                inside, depth, start = name, 1, tag.start()
        elif name == inside and opens:
            depth += 1
        elif name == inside and (closed := _TAG_END.match(text, tag.end())):
            depth -= 1
            if depth == 0:
                yield Span(start, closed.end(), PRIVATE if inside == "private" else CONTEXT)
                inside = ""
    if inside:
        yield Span(start, len(text), PRIVATE if inside == "private" else CONTEXT)


def _find_key_blocks(text: str) -> Iterator[Span]:
    """PEM, PGP and PuTTY private keys, also with only the beginning or only the end."""
    edges = list(scan(_KEY_EDGE, text))
    done_to = 0
    for edge in scan(_PUTTY_EDGE, text):
        if edge.start() >= done_to:
            done_to = _find_block_end(text, edge.end())
            yield Span(edge.start(), done_to, _KEY)
    done_to = 0
    for number, edge in enumerate(edges):
        if edge.start() < done_to:
            continue
        following = edges[number + 1] if number + 1 < len(edges) else None
        start = edge.start()
        if edge[1] == "END":
            earliest = max(done_to, start - _MAX_KEY_CHARS)
            before = _KEY_BODY_REVERSED.match(text[earliest:start][::-1])
            start -= before.end() if before else 0
            done_to = edge.end()
        elif following is not None and following[1] == "END":
            done_to = following.end()
        else:
            done_to = _find_block_end(text, edge.end())
        yield Span(start, done_to, _KEY)


def _find_block_end(text: str, start: int) -> int:
    """Where a key that begins before `start` ends, when its end mark is missing."""
    end = start
    while (body := _KEY_BODY.match(text, end, end + WINDOW)) and body.end() > end:
        is_cut = body.end() == end + WINDOW
        end = body.end()
        if is_cut and (rest := _KEY_RUN.match(text, end)):
            end = rest.end()
    last = _KEY_LAST_LINE.match(text, end)
    return last.end() if last else end


def _find_key_lines(text: str) -> Iterator[Span]:
    """Lines from the middle of a key. Certificates and public keys look the same between their edges, and are kept."""
    if "BEGIN CERTIFICATE" in text or "PUBLIC KEY" in text:
        return
    for block in scan(_KEY_LINES, text):
        if _is_key_material(block[0]):
            yield Span(block.start() + (block[0][0] == "\n"), block.end(), _KEY)


def _is_key_material(block: str) -> bool:
    """Whether the lines may be of a key: checksums lack upper or lower case, and signs."""
    return (
        any(map(str.isupper, block))
        and any(map(str.islower, block))
        and any(map(str.isdigit, block))
        and ("/" in block or "+" in block)
    )
