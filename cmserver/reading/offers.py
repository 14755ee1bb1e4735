"""Reads what an agent leaves to the user (a question, options, a proposal), and what the user's next prompt decides about it."""

from __future__ import annotations

import re

import msgspec

from cmserver.base.sentences import split_line
from cmserver.base.text import shorten
from cmserver.base.words import content_words
from cmserver.reading.conclusions import FEW_WORDS, MAX_QUOTE, count_words, is_vague, list_items, matches
from cmserver.reading.standing import read_standing_instructions, split_prompt
from cmserver.reading.text import MAX_LAID_DOWN, capitalize

_MAX_OPTION, _MAX_ANSWER_WORDS, _MAX_THANKS_WORDS = 160, 80, 4
_QUESTION = re.compile(r"[?？](?=[\s*_)»”\"]*$)|か。$", re.MULTILINE)  # noqa: RUF001 - Japanese
_PICK = re.compile(
    r"^\W*(?:[^\W\d]+[ ]+){0,3}?(?:#|\()?(?:(?P<number>[1-9１-９])(?![\d:%]|[.,]\d|[ ]?(?:ms|s|min|h|kb|mb|gb|px)\b)"  # noqa: RUF001
    r"|(?P<letter>[A-Ha-h])(?=[).:,]|\s*$|\s+(?:and|but|und|aber|et|mais|i|ale)\b))"
)

_OR = re.compile(r"\b(?:or|oder|ou|czy|o)\b|それとも|还是", re.IGNORECASE)
_LEAD = re.compile(r"^\W*(?:(?:and|but|und|aber|et|mais|y|i|ale)\b\W*)?", re.IGNORECASE)


class Offer(msgspec.Struct, frozen=True):
    """What the agent left to the user: its question or proposal, and the options that it listed."""

    question: str
    options: list[str]


class UserAnswer(msgspec.Struct, frozen=True):
    """What the user decided: `about` what, in the agent's words, and in the user's own."""

    about: str
    words: str
    quote: str
    """One of the sentences of the words."""
    chosen: list[str]
    is_assent: bool

    @property
    def title(self) -> str:
        """What holds now: the chosen option with what the user adds, or the user's words and what they answer."""
        if not self.chosen:
            return title_answer(self.words, self.about)
        added = _LEAD.sub("", _PICK.sub("", self.words, count=1), count=1)
        return shorten(capitalize("; ".join(filter(None, [shorten(self.about, _MAX_OPTION // 2), added]))), MAX_LAID_DOWN)


def title_answer(words: str, about: str) -> str:
    """The answer first, then what it answers."""
    about = shorten(about, max(MAX_LAID_DOWN // 3, MAX_LAID_DOWN - len(words) - 3))
    return capitalize(f"{shorten(words, MAX_LAID_DOWN - len(about) - 3)} ({about})")


def read_offer(message: str) -> Offer | None:
    """What the message leaves to the user; None when it only reports. Its last question counts, else its last proposal."""
    lines = [line.strip(" *_>#") for line in message[-MAX_QUOTE * 10 :].splitlines()]
    sentences = [sentence for line in lines for sentence in split_line(line)]
    place = next((at for at in range(len(sentences) - 1, -1, -1) if _QUESTION.search(sentences[at])), None)
    if place is None:
        place = next((at for at in range(len(sentences) - 1, -1, -1) if matches("proposal", sentences[at])), None)
    if place is None:
        return None
    question = sentences[place]
    options = [shorten(item, _MAX_OPTION) for item in list_items(message)]
    if place and not options and is_vague(question) and not is_vague(sentences[place - 1]):
        question = f"{sentences[place - 1]} {question}"
    return Offer(shorten(question, MAX_QUOTE), options)


def asks_to_choose(question: str) -> bool:
    """Whether it asks for one of several, and not for yes or no."""
    return matches("wh_question", question) or _OR.search(question) is not None


def read_answer(offer: Offer, prompt: str) -> UserAnswer | None:
    """The decision in the prompt that follows the offer; None for thanks, a question in return, and a request of its own."""
    laid_down = " ".join(read_standing_instructions(prompt))
    sentences = [sentence for sentence in split_prompt(prompt) if sentence not in laid_down]
    words = " ".join(sentences)
    if not words or words.rstrip().endswith(("?", "？")):  # noqa: RUF001 - Japanese
        return None
    is_assent, is_refusal = matches("assent", words), matches("refusal", words)
    if matches("thanks", words) and count_words(words) <= _MAX_THANKS_WORDS and not is_refusal:
        return None
    chosen = _find_chosen(offer, words)
    about = content_words(" ".join([offer.question, *offer.options]))
    shares = len(content_words(words) & about) >= (1 if count_words(words) <= _MAX_ANSWER_WORDS // 4 else 2)
    is_short = count_words(words) <= _MAX_ANSWER_WORDS
    is_told = matches("wh_question", offer.question) and count_words(words) <= _MAX_ANSWER_WORDS // 4
    if not (chosen or is_refusal or is_assent or (is_short and (shares or is_told))):
        return None
    if is_assent and len(content_words(words)) <= FEW_WORDS and not offer.options and is_vague(offer.question):
        return None  # yes to something that nobody can tell next day
    return UserAnswer(
        about="; ".join(chosen) or offer.question,
        words=shorten(words, MAX_QUOTE),
        quote=shorten(max(sentences, key=len), MAX_QUOTE),
        chosen=chosen,
        is_assent=is_assent and not is_refusal and not chosen,
    )


def _find_chosen(offer: Offer, words: str) -> list[str]:
    """The options that the answer names: by number or letter, or by the only option that has its words."""
    if pick := _PICK.match(words):
        place = int(pick["number"]) - 1 if pick["number"] else ord(pick["letter"].casefold()) - ord("a")
        return offer.options[place : place + 1]
    if not asks_to_choose(offer.question) or matches("assent", words) or matches("refusal", words):
        return []
    mine = content_words(words)
    shared = [len(mine & content_words(option)) for option in offer.options]
    best = max(shared, default=0)
    is_clear = best > 0 and shared.count(best) == 1
    return [offer.options[shared.index(best)]] if is_clear else []
