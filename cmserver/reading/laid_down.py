"""Finds what a user lays down for good in a prompt: "never use floats for money", "from now on deploy with make".

In doubt a sentence is none: the line of its turn tells it all the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cmserver.base.text import shorten
from cmserver.reading.model import UserRule
from cmserver.reading.own_words import BULLET, announces, is_rules_heading, own_blocks
from cmserver.reading.phrases import find_phrase
from cmserver.reading.text import MAX_LAID_DOWN, MAX_QUOTE, capitalize

_MAX_CHARS = 1_200
"""Of a prompt of sentences; who writes more describes something. A list of rules may be longer."""
_MAX_RULES = 20
_MIN_WORDS = _MIN_ITEMS = 2
_MARKS = re.compile(r"\*\*|__")
_QUOTED = re.compile(
    r"\"[^\"\n]{1,300}\"|`[^`\n]{1,300}`|「[^」\n]{1,300}」|“[^”\n]{1,300}”|„[^“\n]{1,300}“|« ?[^»\n]{1,300}»|»[^«\n]{1,300}«"
    r"|‚[^‘\n]{1,300}‘|(?<!\w)['‘](?:[^'’\n]|(?<=\w)['’](?=\w)){2,300}['’](?!\w)"  # noqa: RUF001 - quotation marks
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")  # noqa: RUF001 - Japanese
"""In what a user types, where a sentence may begin with a small letter."""
_NUMBER = re.compile(r"(?:^|\s)\(?\d{1,2}[.)]\s")
_CLAUSE_END = re.compile(r"[,;:] | [\u2014\u2013-] ")
_SPEAKER = re.compile(r"\s*(?:\[[^\]\n]{1,20}\]\s*)?@?\w{1,20}(?: \w{1,20})?: +\S")
_MAIL = re.compile(r"\s*(?:From|Subject|To|Von|Betreff|De|Objet|Asunto): ")


def read_rules(prompt: str) -> list[UserRule]:
    """What the user lays down for good. Questions, quotes, pasted texts and what is asked for once are none."""
    blocks = own_blocks(prompt)
    is_short = sum(len(line) for block in blocks for line in block) <= _MAX_CHARS
    rules: list[UserRule] = []
    heading = ""
    for block in blocks:
        if _MAIL.match(block[0] if block else ""):
            break  # this and what follows are somebody else's
        is_material = _is_dialogue(block)
        for line in block:
            text, is_item = _MARKS.sub("", BULLET.sub("", line)).strip(), BULLET.match(line) is not None
            if items := _split_list(text):
                rules += map(_make_rule, items)
                heading = ""
                continue
            if is_item and heading:
                rules += [_make_rule(text, _lead(heading))] if is_rules_heading(heading) and not text.endswith("?") else []
                continue
            if is_short and not is_material:
                rules += map(_make_rule, _find_rules(text))
            heading = text if text.endswith((":", "?")) else ""
            is_material = is_material or announces(text)
    return list(dict.fromkeys(rules))[:_MAX_RULES]


def _split_list(line: str) -> list[str]:
    """The items of a list within a line, behind what heads rules: "our rules: 1) tabs 2) no force push"."""
    heading, *items = (part.strip(" ,;") for part in _NUMBER.split(line))
    if len(items) < _MIN_ITEMS or not is_rules_heading(heading):
        return []
    return [*items[:-1], _SENTENCE_END.split(items[-1])[0]]


def _find_rules(line: str) -> list[str]:
    """The rules among the sentences of a line, each with those beside it that give its exception and its reason.

    None beside a joke, or where another sentence talks: who tells what he or others think seldom lays something down. Beside a
    question only what says that it holds from now on.
    """
    if find_phrase("joke", line):
        return []
    sentences = [sentence.strip() for sentence in _SENTENCE_END.split(line) if sentence.strip()]
    sentences = sentences[:-1] if line.endswith(":") else sentences
    rules: list[str] = []
    beside: list[str] = []
    taken = 0
    for place, sentence in enumerate(sentences):
        if place < taken:
            continue
        if beside and place > taken and find_phrase("remember_that", sentence):
            rules.append(beside.pop())
        elif _is_rule(sentence):
            start = place - (place > taken and _leads_to(sentences[place - 1], sentence))
            del beside[len(beside) - (place - start) :]
            taken, rule = place + 1, " ".join(sentences[start : place + 1])
            while taken < len(sentences) and (_is_in_brackets(rule) or _belongs(sentences[taken])):
                rule = f"{rule} {sentences[taken]}"
                taken += 1
            rules.append(rule)
        else:
            beside.append(sentence)
    if any(map(_is_talk, beside)):
        return []
    return [rule for rule in rules if _is_standing(rule)] if "?" in line else rules


def _is_talk(sentence: str) -> bool:
    bare = _QUOTED.sub("", sentence)
    return (find_phrase("talk", bare) or find_phrase("doubt", bare)) is not None


def _is_standing(sentence: str) -> bool:
    """Whether the sentence says itself that it holds from now on."""
    bare = _QUOTED.sub("", sentence)
    found = find_phrase("standing", bare)
    if found is None or bare.endswith("?"):
        return False
    end = _CLAUSE_END.search(bare, found.end())
    clause = bare[: end.start() if end else len(bare)]
    return not any(find_phrase(kind, clause) for kind in ("talk", "past", "doubt", "once"))


def _is_rule(sentence: str) -> bool:
    """Whether the sentence lays something down for good."""
    if _is_standing(sentence):
        return True
    bare = _QUOTED.sub("", sentence)
    if bare.endswith("?") or len(bare.split()) < _MIN_WORDS or find_phrase("once", bare):
        return False
    lead = find_phrase("lead_in", bare)
    found = find_phrase("rule", bare)
    if found is None and lead is not None:
        bare = bare[lead.end() :]
        found = find_phrase("rule", bare)
    if found is None or find_phrase("doubt", bare):
        return False
    end = _CLAUSE_END.search(bare, found.end())
    clause = bare[: end.start() if end else len(bare)]
    return (find_phrase("talk", clause) or find_phrase("past", clause)) is None


def _belongs(following: str) -> bool:
    """Whether a sentence says more of the rule before it: an exception, a reason, or a word of emphasis."""
    if following.endswith("?"):
        return False
    if find_phrase("exception", following):
        return True
    return find_phrase("reason", following) is not None and not _is_rule(following)


def _is_in_brackets(text: str) -> bool:
    """Whether it ends at a full stop within brackets: "(ref. 12)"."""
    return text.rfind("(") > text.rfind(")")


def _leads_to(before: str, rule: str) -> bool:
    """Whether a sentence gives the reason of the rule behind it."""
    return not before.endswith("?") and (find_phrase("follows", rule) or find_phrase("reason", before)) is not None


def _lead(heading: str) -> str:
    """What of a heading belongs to each of its items: of "Never:" the whole, of "Rules for this repo:" nothing."""
    return heading if find_phrase("rule", f"{heading[:-1]} do") else ""


def _make_rule(text: str, lead: str = "") -> UserRule:
    quote = shorten(text, MAX_QUOTE)
    match = find_phrase("lead_in", quote)
    point = quote[match.end() :] if match else quote
    title = f"{lead} {quote}" if lead else point if len(point.split()) >= _MIN_WORDS else quote
    return UserRule(quote, shorten(capitalize(title), MAX_LAID_DOWN))


def _is_dialogue(lines: Sequence[str]) -> bool:
    """Whether several lines begin with who speaks."""
    return sum(_SPEAKER.match(line) is not None for line in lines) > 1
