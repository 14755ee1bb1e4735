"""Making text short and readable: head and tail kept, with what is missing said between; what no model can read is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_WINDOW = 40_000
"""Of a longer text only this much, half from each end, is looked at."""
_SMALL = 60
"""Below this a text is cut at its end, without a count."""
_MARK = 30
"""The mark of what is missing, but for its number."""
_HEAD_PERCENT = 60
_BINARY_ONE_IN = 10
_SHORT = 20

_COLOURS = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
                        "\ufff9-\ufffb\U000e0000-\U000e007f]")  # fmt: skip
_JOINERS = re.compile("(?<=[\x00-\x7f])[\u200c\u200d]+|(?<![\u200c\u200d])[\u200c\u200d]++(?=[\x00-\x7f])")
"""Between letters of other scripts and within emoji they mean something; beside ASCII they only hide it."""
_DATA_URL = re.compile(r"data:([\w.+-]{0,60}/[\w.+-]{0,80})?[^,\s\"'<>]{0,100};base64,[A-Za-z0-9+/=_-]{40,}", re.IGNORECASE)
_BASE64 = re.compile(
    r"[A-Za-z0-9+/]{200,}+={0,2}+(?:\n[A-Za-z0-9+/]{4,}+={0,2}+(?=\n|\Z))*+"
    r"|(?:(?<=\n)|\A)(?:[A-Za-z0-9+/]{60,}+\n){3,}+(?:[A-Za-z0-9+/]{1,}+={0,2}+(?=\n|\Z))?+"
)


def clean(text: str) -> str:
    """The text without what no reader sees: colours, control and invisible characters. Binary and base64 leave a mark.

    Afterwards it can be encoded, lines end as in Unix, and no character hides another.
    """
    text = text.encode("utf-8", "replace").decode()
    if _is_binary(text):
        return f"[binary data, {_count(text)} left out]"
    text = _COLOURS.sub("", _LINE_ENDS.sub("\n", text))
    text = _JOINERS.sub("", _INVISIBLE.sub("", _CONTROL.sub("", text)))
    if ";base64," in text:
        text = _DATA_URL.sub(lambda found: f"[data of type {found[1] or 'unknown'}, {_count(found[0])} left out]", text)
    return _BASE64.sub(lambda found: f"[base64, {_count(found[0])} left out]", text)


def excerpt(text: str, most: int) -> str:
    """The text, clean, in at most `most` characters. Reads no more of a long text than it may show, within reason."""
    window = max(_WINDOW, 2 * most)
    if len(text) <= window:
        return elided(clean(text), most)
    half = window // 2
    return _joined(clean(text[:half]), clean(text[-half:]), len(text) - window, most)


def elided(
    text: str, most: int, whole_head: Callable[[str], str] = lambda text: text, whole_tail: Callable[[str], str] = lambda text: text
) -> str:
    """The text in at most `most` characters. `whole_head` and `whole_tail` may take away what a cut has torn."""
    if len(text) <= most:
        return text
    if most < _SMALL:
        return whole_head(text[: most - 1]) + "…" if most > 0 else ""
    return _joined(text, text, -len(text), most, whole_head, whole_tail)


def one_line(text: str, most: int) -> str:
    """The text, clean, as one line. All kinds of line ends count as spaces."""
    line = " ".join(clean(text[: most * 4]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def shares(lengths: Sequence[int], total: int) -> list[int]:
    """How much of each may be shown so that all fit: short ones whole, the longest cut to the same length."""
    given = [0] * len(lengths)
    left = max(0, total)
    order = sorted(range(len(lengths)), key=lambda place: lengths[place])
    for done, place in enumerate(order):
        given[place] = min(lengths[place], left // (len(order) - done))
        left -= given[place]
    return given


def _joined(
    first: str,
    last: str,
    between: int,
    most: int,
    whole_head: Callable[[str], str] = lambda text: text,
    whole_tail: Callable[[str], str] = lambda text: text,
) -> str:
    """The head of the one and the tail of the other. `between` is how many characters there are besides."""
    room = most - _MARK - len(f"{len(first) + len(last) + between:,}")
    front = room * _HEAD_PERCENT // 100
    head = whole_head(_to_line_end(first[:front]))
    tail = whole_tail(_from_line_start(last[max(0, len(last) - (room - front)) :]))
    gone = len(first) + len(last) + between - len(head) - len(tail)
    return f"{head}\n[… {gone:,} characters left out …]\n{tail}"


def _to_line_end(head: str) -> str:
    end = head.rfind("\n")
    return head[:end] if end > len(head) * 3 // 4 else head


def _from_line_start(tail: str) -> str:
    start = tail.find("\n")
    return tail[start + 1 :] if 0 <= start < len(tail) // 4 else tail


def _is_binary(text: str) -> bool:
    """One strange character in ten. Colours of a terminal are not strange."""
    if len(text) < _SHORT or not ("\ufffd" in text or _CONTROL.search(text)):
        return False
    strange = len(_CONTROL.findall(_COLOURS.sub("", text))) + text.count("\ufffd")
    return strange * _BINARY_ONE_IN > len(text)


def _count(text: str) -> str:
    return f"{len(text):,} characters"
