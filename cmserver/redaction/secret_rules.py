"""All rules for secrets, and the selection of those that a text needs, most often none.

A pattern is tried only on a text that contains one of its needles. Each pattern either consumes what it has read or reads a
bounded part of it, so that no text makes it slow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from cmserver.redaction.named_values import NAME_RULES
from cmserver.redaction.places import COMMAND_RULES, PLACE_RULES
from cmserver.redaction.rule import Rule, has_match, lower
from cmserver.redaction.spans import Span
from cmserver.redaction.split import split_rule
from cmserver.redaction.token_forms import TOKEN_RULES

K = TypeVar("K", bound=Hashable)


def _find_undivided(text: str) -> Iterator[Span]:
    """Spans of secrets that no break divides."""
    low = lower(text)
    return find(text, [rule for rule in select_rules(text, low) if rule is not _SPLIT_RULE], low)


_SPLIT_RULE = split_rule(_find_undivided)
RULES = (*TOKEN_RULES, *PLACE_RULES, *NAME_RULES, *COMMAND_RULES, _SPLIT_RULE)


def _index_rules(keys: Callable[[Rule], Iterable[K]]) -> list[tuple[K, list[int]]]:
    """Each key with the positions in RULES of the rules that have it."""
    index: dict[K, list[int]] = defaultdict(list)
    for position, rule in enumerate(RULES):
        for key in keys(rule):
            index[key].append(position)
    return list(index.items())


_NEEDLES = _index_rules(lambda rule: rule.needles if rule.gate is None and not rule.lowered else ())
_LOWER_NEEDLES = _index_rules(lambda rule: rule.needles if rule.gate is None and rule.lowered else ())
_GATES = _index_rules(lambda rule: () if rule.gate is None else (rule.gate,))


def select_rules(text: str, low: str) -> list[Rule]:
    """The rules that could find something in the text, most often none. `low` is the text after `lower`."""
    touched = [positions for needle, positions in _NEEDLES if needle in text]
    touched += [positions for needle, positions in _LOWER_NEEDLES if needle in low]
    touched += [positions for (sign, pattern), positions in _GATES if sign in text and has_match(pattern, text)]
    if not touched:
        return []
    return [RULES[position] for position in sorted({position for positions in touched for position in positions})]


def may_find(text: str, rules: Iterable[Rule]) -> bool:
    """Whether `find` could find something; much cheaper than `find`."""
    low = lower(text)
    return any(_has_needle(rule, low if rule.lowered else text) for rule in rules)


def find(text: str, rules: Iterable[Rule], low: str | None = None) -> Iterator[Span]:
    """Spans of secrets, unsorted and possibly overlapping. The more specific kind comes first."""
    low = lower(text) if low is None else low
    for rule in rules:
        if _has_needle(rule, low if rule.lowered else text):
            yield from rule.find(text, low)


def _has_needle(rule: Rule, haystack: str) -> bool:
    return any(needle in haystack for needle in rule.needles)
