"""Removes invisible characters from texts, and replaces tags and their look-alikes.

Prompts (models/providers/prompts) and answers (observations/plain.py) put stored text between tags. A model reads more than one
spelling of a tag: other brackets and hyphens, letters of other scripts, entities, escapes of JSON, Python and URLs, and names with
invisible characters in them. Many models also know words that end a turn: `<|im_end|>`, `[INST]`.
"""

from __future__ import annotations

import html
import html.entities
import re
import sys
import unicodedata
from collections.abc import Callable
from functools import lru_cache

COLOURS = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
"""Escape sequences of terminals."""
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")

INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Soft hyphens, fillers, zero widths, marks and orders of direction, selectors of variants, tags: as in a class of a regex."""
JOINERS = "\u200c\u200d"
JOINED = (
    "\u0600-\u109f\u1780-\u18af\u1900-\u1cff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefe\U00010a00-\U00011fff"
    "\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
"""Scripts whose letters take joiners, and emoji. Between two of these a joiner is seen, everywhere else it only hides."""
_BLANKS = "\u2800"
"""Characters that are displayed as a space, but not whitespace to Unicode."""
_BLANK_RUN = re.compile(rf"[\s{_BLANKS}]+")
_SILENT = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Me", "Mn"})
_UNSEEN = re.compile(f"[{INVISIBLE}]")
_UNSEEN_JOINERS = re.compile(f"(?<![{JOINED}])[{JOINERS}]+|[{JOINERS}]+(?![{JOINED}])")

_LESS_THAN = (
    "<\uff1c\ufe64\u2039\u3008\u2329\u27e8\u276c\u276e\u2770\u29fc\ufe3f\u02c2\u1438\u16b2\u226e\U0001d236"
    "\u00ab\u226a\u227a\u22d6\u22d8\u27ea\u2991\u2993\u2aa1\u2abb\u300a\ufe3d"
)
_NAMED = sorted(name for name, characters in html.entities.html5.items() if characters[0] in _LESS_THAN and name.endswith(";"))
AMPERSAND = "amp;|#0*+38;|#x0*+26;"
"""What an entity for `&` goes on with, as in a regex, without case."""
LESS_THAN = (
    f"lt|laquo|{'|'.join(_NAMED)}|#0*+(?:{'|'.join(str(ord(opener)) for opener in _LESS_THAN)})"
    f"|#x0*+(?:{'|'.join(f'{ord(opener):x}' for opener in _LESS_THAN)})"
)
"""What an entity for `<` goes on with, or for what looks like it."""
_CODES = "|".join(f"{ord(opener):04x}" for opener in _LESS_THAN if opener <= "\uffff")
_OPENER = re.compile(
    rf"[{_LESS_THAN}]|&(?>(?:{AMPERSAND})*)(?:{LESS_THAN});?|\\(?:u(?:{_CODES})|u\{{0*+(?:{_CODES}|3c)\}}|x3c|0?74)|%(?>(?:25)*)3c",
    re.IGNORECASE,
)
_ESCAPED = re.compile(r"\\(?:u\{0*+([\da-f]{1,5})\}|u([\da-f]{4})|x([\da-f]{2}))|%(?>(?:25)*)([\da-f]{2})", re.IGNORECASE)
"""A character as JSON, Python or a URL writes it."""
_INSTRUCTION = re.compile(
    r"[\[\uff3b](?=\s*+/?\s*+(?:inst|sys|system|system_prompt|tool_calls|tool_results|tool_content|available_tools)\s*+[\]\uff3d])",
    re.IGNORECASE,
)
"""What begins a turn, or the answer of a tool, for models of Meta and Mistral."""
_TOKEN = re.compile(r"\|\s*+\w{2,40}+\s*+\|")
_SIGN = re.compile(
    rf"[^&\x80-\U0010ffff]{{1,80}}+|&(?>(?:{AMPERSAND})*)(?:(#)0*+(\d{{1,7}}+);?|(#x)0*+([\da-f]{{1,6}}+);?|([a-z][a-z\d]{{1,31}}+;))|.",
    re.IGNORECASE | re.DOTALL,
)
"""Plain characters, an entity, or any other character."""
_BEFORE_NAMES = " \t\n/\\"
_NAME_LETTERS = 100
"""How many letters and digits of what follows an opener can be the name of a tag, with its prefixes."""
_MAX_DECOMPOSED = 8
"""How many letters a character that stands for several is read as; none that stands for more has a letter of a name."""
_CACHE_SIZE = 16_384

_ALIKE = str.maketrans(
    dict.fromkeys("\u2044\u2215\u2571\u29f8", "/")
    | dict.fromkeys(
        "\u02d7\u058a\u05be\u1806\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u2500\u2796\u2e17\u2e3a\u2e3b\u30fc", "-"
    )
    | dict.fromkeys(JOINERS)
    | dict(zip("авсԁеһніїјкӏмпорԛгѕтуѵԝхьʏɡɑıɩ", "abcdehhiijklmnopqrstyvwxbygaii", strict=True))
    | dict(zip("αεηικνορτυχγϲϳωօոսցհⲟⲥ", "aenikvoptuxycjwonughoc", strict=True))
    | dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡᴢ", "abcdefghijklmnoprstuvwz", strict=True))
)
"""Hyphens, and the small letters of other scripts that look like ours."""


def remove_invisible(text: str) -> str:
    """The text without invisible characters, with all line ends as line feeds."""
    if text.isascii() and text.isprintable():
        return text
    text = CONTROL.sub("", COLOURS.sub("", LINE_ENDS.sub("\n", text)))
    return text if text.isascii() else _UNSEEN_JOINERS.sub("", _UNSEEN.sub("", text))


def sanitize_line(text: str) -> str:
    """The text in one line, without invisible and control characters."""
    return "".join(char if char.isprintable() or char in JOINERS else " " for char in remove_invisible(text))


def clean_name(name: str) -> str:
    """A name as people see it: composed (NFC), in one line, nothing invisible and no boxes. It may be empty."""
    if name.isascii() and name.isprintable():
        return name.strip()
    text = remove_invisible(unicodedata.normalize("NFC", name))
    text = "".join(letter for letter in text if letter.isascii() or not _is_blind(letter))
    line = _BLANK_RUN.sub(lambda run: " " if run[0].strip(" ") else run[0], text)
    return unicodedata.normalize("NFC", line).strip()


def _is_blind(letter: str) -> bool:
    """Whether the character is invisible or unassigned; emoji and ideographs of a later Unicode are visible."""
    category = unicodedata.category(letter)
    if category == "Cn":
        return not ("\U0001f000" <= letter <= "\U0001faff" or "\U00020000" <= letter <= "\U0003fffd")
    return letter in "\ufffc\U0001d159" or (category in {"Cf", "Co", "Cs"} and letter not in JOINERS)


def replace_tags(text: str, is_ours: Callable[[str, bool], bool], write: Callable[[str], str]) -> str:
    """The text with another beginning of each tag that is ours. The text must have nothing invisible (`remove_invisible`).

    `is_ours` gets what follows from the tag's name on, up to the next beginning, with look-alikes as the plain letters in small,
    and whether it stands apart: in `List<User>` it does not, since a letter or a digit is before it, and it closes nothing. `write`
    gets what begins the tag: `<`, what looks like it, an entity or an escape for it, or the `[` of `[INST]`. Each character is read
    once, whatever it is.
    """
    text = _INSTRUCTION.sub(lambda bracket: write(bracket[0]), text)
    openers = list(_OPENER.finditer(text))
    if not openers:
        return text
    parts = [text[: openers[0].start()]]
    for opener, end in zip(openers, [*(following.start() for following in openers[1:]), len(text)], strict=True):
        closes = text[opener.end() : opener.end() + 2].strip()[:1] == "/"
        is_apart = closes or not text[max(opener.start() - 1, 0) : opener.start()].isalnum()
        is_tag = any(is_ours(name, is_apart) for name in _read_names(text, opener.end(), end))
        parts += [write(opener[0]) if is_tag else opener[0], text[opener.end() : end]]
    return "".join(parts)


def is_token(name: str) -> bool:
    """Whether a tag that goes on so is a word that begins or ends something for a model: `<|im_start|>`."""
    return _TOKEN.match(name) is not None


def read_letters(text: str) -> str:
    """The beginning of the text in plain small letters, whatever letters look like them."""
    return "".join(_fold(sign)[0] for sign in text)


def _read_names(text: str, start: int, end: int) -> set[str]:
    """What stands there as plain letters: with modifier letters as what they look like, and without them."""
    if start == end:
        return set()
    if text.find("\\", start, end) >= 0 or text.find("%", start, end) >= 0:
        text = _ESCAPED.sub(_unescape, text[start:end])
        start, end = 0, len(text)
    with_modifiers: list[str] = []
    without_modifiers: list[str] = []
    letter_count = 0
    for sign in _SIGN.finditer(text, start, end):
        if sign[0].isascii() and sign[0][0] != "&":
            letters = without_modifier = sign[0].lower()
        elif sign.lastindex is None:
            letters, without_modifier = _fold(sign[0])
        else:
            letters, without_modifier = _fold(_decode("".join(filter(None, sign.groups()))))
        with_modifiers.append(letters)
        without_modifiers.append(without_modifier)
        letter_count += sum(map(str.isalnum, letters))
        if letter_count >= _NAME_LETTERS:
            break
    return {"".join(letters).lstrip(_BEFORE_NAMES) for letters in (with_modifiers, without_modifiers)}


def _unescape(escaped: re.Match[str]) -> str:
    code = int(escaped[escaped.lastindex or 0], 16)
    return chr(code) if code <= sys.maxunicode else ""


@lru_cache(_CACHE_SIZE)
def _decode(entity: str) -> str:
    """The characters of an entity without its `&`, or the text itself."""
    return html.unescape(f"&{entity}") if entity.endswith(";") else html.unescape(f"&{entity};")


@lru_cache(_CACHE_SIZE)
def _fold(sign: str) -> tuple[str, str]:
    """The sign as plain letters, and the same, or nothing for a modifier letter."""
    if not sign:  # an entity for nothing
        return "", ""
    if sign.isspace() or sign in _BLANKS:
        return " ", " "
    plain = unicodedata.normalize("NFKD", sign.casefold())[:_MAX_DECOMPOSED].casefold().translate(_ALIKE)
    plain = _UNSEEN.sub("", "".join(letter for letter in plain if unicodedata.category(letter) not in _SILENT))
    is_modifier = unicodedata.category(sign[0]) == "Lm" and not plain.startswith("-")
    return plain, "" if is_modifier else plain
