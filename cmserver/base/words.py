"""The words that carry a text, in any language: what two texts about the same matter share."""

from __future__ import annotations

import re

from cmserver.base.text import UNSEGMENTED

_STEM_CHARS = 5
_RUN = re.compile(f"[{UNSEGMENTED}]{{2,}}")
_KANA = re.compile("[ぁ-ゖ]{2}")
_WORD = re.compile(r"[^\W\d_][\w-]{2,}|\d{2,}")
_COMMON = """
the and for that this with from was were are has have had not yet still does did but its when then than which will would
should could into also only one two our out now nothing all any been being can left alone remain remains there them they their
some more what done open need needs must may might just after before here you your who how other same der die das und ist
nicht noch ein eine den dem des mit auf für von wird werden sich auch aber als bei nach über ich wir man habe hat wurde muss
müsste sollte nichts nur immer dann wenn dass einen einem einer kein keine zum zur vor aus wie jetzt nun les une pas est dans
sur pour par qui que avec plus encore reste sont ont été cette elle ces aux fait faire faut tout toujours mais donc même aussi
nous vous rien
"""
COMMON_WORDS = frozenset(_COMMON.split())
"""Words of English, German and French that say nothing of what a text is about."""


def content_words(text: str) -> set[str]:
    """The words that carry a text, cut to their first five letters, so that inflected forms are the same.

    Of a script without spaces they are pairs of characters.
    """
    runs = _RUN.findall(text)
    pairs = {run[at : at + 2] for run in runs for at in range(len(run) - 1)}
    words = map(str.casefold, _WORD.findall(_RUN.sub(" ", text) if runs else text))
    return {word[:_STEM_CHARS] for word in words if word not in COMMON_WORDS} | {
        pair for pair in pairs if not _KANA.fullmatch(pair)
    }
