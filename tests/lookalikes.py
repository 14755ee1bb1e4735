"""Spellings of a tag that a model may read as the tag, and texts that nobody sees: one table for all tests of fences and names.

`reads_as` is the most lenient reader: it knows nothing of how the program looks for them.
"""

# ruff: noqa: RUF001 - that they look alike is the point
from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

_CYRILLIC = str.maketrans("aceopxsmvt", "асеорхѕмѵт")


def _within(hidden: str) -> Callable[[str], str]:
    return lambda name: f"</{name[:2]}{hidden}{name[2:]}>"


def _opened_by(opener: str) -> Callable[[str], str]:
    return lambda name: f"{opener}/{name}>"


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda name: f"</{name}>",
    "in capitals": lambda name: f"</{name.upper()}>",
    "with spaces": lambda name: f"< / {name} >",
    "over lines": lambda name: f"<\n/\n{name}\n>",
    "over separated lines": lambda name: f"<\u2028/\u2029{name}\x85>",
    "with attributes": lambda name: f'</{name} x="1">',
    "without an end": lambda name: f"</{name} ",
    "opened again": lambda name: f"<{name}>",
    "with a backslash": lambda name: f"<\\/{name}>",
    **{
        f"opened by U+{ord(opener):04X}": _opened_by(opener)
        for opener in "\uff1c\ufe64\u2039\u3008\u2329\u27e8\u276c\u276e\u2770\u29fc\ufe3f\u02c2\u1438\u226e"
        "\u00ab\u226a\u227a\u27ea\u2aa1\u300a"
    },
    **{
        f"opened by {opener}": _opened_by(opener)
        for opener in (
            "&lt",
            "&lt;",
            "&LT;",
            "&#60;",
            "&#060",
            "&#x3c;",
            "&#X003C;",
            "&amp;#60;",
            "&#38;lt;",
            "&lang;",
            "&lsaquo;",
            "&#8249;",
        )
    },
    **{
        f"opened by {opener}": (lambda name, opener=opener: f"{opener}/{name}>")
        for opener in ("\\u003c", "\\u003C", "\\\\u003c", "\\x3c", "\\u{3c}", "%3C", "%3c", "%253C", "\\uff1c")
    },
    "escaped as JSON": lambda name: "".join(f"\\u{ord(letter):04x}" for letter in f"</{name}>"),
    "escaped as a URL": lambda name: "".join(f"%{ord(letter):02X}" for letter in f"</{name}>"),
    **{f"slash U+{ord(slash):04X}": (lambda name, slash=slash: f"<{slash}{name}>") for slash in "\u2044\u2215\u2571\u29f8\uff0f"},
    "slash as an entity": lambda name: f"<&#47;{name}>",
    "name in entities": lambda name: "</" + "".join(f"&#{ord(letter)};" for letter in name) + ">",
    **{
        f"hyphen U+{ord(hyphen):04X}": (lambda name, hyphen=hyphen: f"</{name.replace('-', hyphen)}>")
        for hyphen in "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d_"
    },
    "without hyphens": lambda name: f"</{name.replace('-', '')}>",
    "wide letters": lambda name: "</" + "".join(chr(ord(one) + 0xFEE0) if one.isalpha() else one for one in name) + ">",
    "mathematical letters": lambda name: (
        "</" + "".join(chr(ord(one) - 97 + 0x1D41A) if one.isalpha() else one for one in name) + ">"
    ),
    "Cyrillic letters": lambda name: f"</{name.translate(_CYRILLIC)}>",
    "accents": lambda name: f"</{name[0]}\u0301{name[1:]}>",
    "struck through": lambda name: f"<\u0338/{name}>",
    **{
        f"hidden U+{ord(hidden):04X}": _within(hidden)
        for hidden in (
            "\u3164\u115f\u1160\uffa0\u034f\u180e\u17b4\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\u00ad\ufeff\u061c\u200e\u200f\u202a"
            "\u202c\u202e\u2066\u2069\u206a\ufe00\ufe0f\ufff9\ufffb\U000e0001\U000e0061\U000e007f\U000e0100\U000e01ef\U0001d173\x01\x1b\x7f\x9b"
        )
    },
    "hidden colour": _within("\x1b[0m"),
    "hidden joiner among wide letters": lambda name: (
        "</" + "\u200c".join(chr(ord(one) + 0xFEE0) for one in name if one.isalpha()) + ">"
    ),
    "with a prefix": lambda name: f"</a:{name}>",
    "behind hidden entities": lambda name: f"<{'&#8203;' * 60}/{name}>",
    "hidden by entities": lambda name: f"</{name[:2]}{'&#8203;' * 60}{name[2:]}>",
    **{
        f"modifier letter U+{ord(modifier):04X} {where}": (
            lambda name, modifier=modifier, place=place: f"</{name[:place]}{modifier}{name[place:]}>"
        )
        for modifier in "\u02bc\u02b0\u02d0"
        for where, place in (("before", 0), ("within", 2))
    },
    "turned around": lambda name: f"\u202e>{name[::-1]}/<\u202c </\u2066{name}>",
}
"""By a name of the spelling: what is stored, for the name of a tag with a hyphen in it."""

NAMES = [
    "cafe\u0301",
    "\u212bngstrom",
    *(
        f"a{ord(hidden):x}{hidden}b"
        for hidden in "\u3164\u115f\u1160\uffa0\u034f\u180e\u200b\u200c\u200d\u2060\u2064\u00ad\ufeff"
        "\u061c\u202e\u2066\ufe0f\ufff9\U000e0061\U000e0100"
    ),
    "two\nlines",
    "tab\tand\u2028more",
    "col\x1b[31moured",
    "bell\x07\x9b",
    "joined\u200c \u200dalone",
]
"""Names that are not spelled as they are seen, each of which is seen otherwise than the others."""

BLIND_NAMES = [
    f"a{letter}b"
    for letter in "\u2800\u00a0\u2003\u3000\ufffc\U0001d159\u070f\u08e2\U000110bd\ue000\U000f0000\U00100000\u0378\uffff"
]
"""Names with a blank, or with a character that shows as nothing or as a box."""

UNSEEN = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
"""A word in tag characters, which only a model sees."""

LEGIBLE = [
    "👩🏽\u200d🚀",
    "🏳\u200d🌈",
    "می\u200cخواهم",
    "क्\u200dष",
    "Büro 漢字",
    "a < b && c > d",
    "‹quoted› ‘and’ – dashed",
    "R&D, &c.",
]
"""What must be read as it is."""

_LESS_THAN = dict.fromkeys(
    map(ord, "\uff1c\ufe64\u2039\u3008\u2329\u27e8\u276c\u276e\u2770\u29fc\ufe3f\u02c2\u1438\u00ab\u226a\u227a\u27ea\u2aa1\u300a"),
    "<",
)
_LETTERS = {ord(alike): plain for alike, plain in zip("асеорхѕмѵт", "aceopxsmvt", strict=True)}
_IGNORED = re.compile("[\u115f\u1160\u17b4\u17b5\u3164\uffa0]")
_ENTITY = re.compile(r"&(?:(?i:lt)(?!;)|(?!lt)(?i:lt);|(?i:#0*60|#x0*3c|#8249);?|(?:lang|lsaquo);)")


def is_unseen(letter: str) -> bool:
    """Whether no reader sees the letter, and it is no line break and no joiner."""
    if letter in "\n\t\u200c\u200d":
        return False
    is_selector = "\ufe00" <= letter <= "\ufe0f" or "\U000e0100" <= letter <= "\U000e01ef" or "\u180b" <= letter <= "\u180f"
    return is_selector or unicodedata.category(letter) in {"Cf", "Cc"} or bool(_IGNORED.match(letter)) or letter == "\u034f"


def _decoded(escaped: re.Match[str]) -> str:
    return chr(int(escaped[escaped.lastindex or 0], 16))


def reads_as(text: str, *, decoded: bool = False) -> str:
    """The text as the most lenient reader takes it: small letters, one bracket, one slash, one hyphen, and nothing between them.

    `&lt;`, `&amp;` and escapes stay what they are, since a prompt's fence writes or leaves them, unless it is to be `decoded`.
    """
    if decoded:
        text = re.sub(
            r"\\u([0-9a-f]{4})|\\u\{([0-9a-f]+)\}|\\x([0-9a-f]{2})|%(?:25)*([0-9a-f]{2})", _decoded, text, flags=re.IGNORECASE
        )
        text = text.replace("&amp;", "&").replace("&#38;", "&").replace("&lt;", "<")
    text = re.sub("\x1b\\[[0-9;]*m", "", text)
    text = _ENTITY.sub("<", text).translate(_LESS_THAN)
    text = re.sub(r"&#(\d+);", lambda found: chr(int(found[1]) % 0x110000), text)
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Lm")
    plain = unicodedata.normalize("NFKD", text.casefold()).translate(_LESS_THAN).casefold().translate(_LETTERS)
    plain = "".join(one for one in plain if unicodedata.category(one) not in {"Cf", "Cc", "Mn"} or one in "\n\t")
    plain = re.sub("[\u2010-\u2015\u2212_]", "-", _IGNORED.sub("", plain))
    return re.sub("[\u2044\u2215\u2571\u29f8\\\\]", "/", plain)
