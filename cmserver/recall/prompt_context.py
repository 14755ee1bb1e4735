"""Context on a prompt: the up to three sentences of the project that come nearest to it, or nothing.

How near a sentence is says the cosine of its vector and the prompt's, and how many of the prompt's words it has; without vectors
the words alone. It is told from a threshold on that leaves nine of ten prompts of other projects alone: see
docs/why/context-on-a-prompt.md, and tests/recall/test_gate.py, which holds it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from heapq import nlargest
from itertools import chain, islice
from math import log
from uuid import UUID

import msgspec
from psycopg import errors

from cmserver.access.model import Principal, Project
from cmserver.base.sentences import split_sentences
from cmserver.base.sql import Conn
from cmserver.base.text import PROMPT_MOST, UNSEGMENTED
from cmserver.embeddings.model import QueryVector
from cmserver.git.clones.marks import CodeMarks, find_only_file
from cmserver.git.clones.read_marks import read_marks
from cmserver.observations import repository as observations
from cmserver.recall import repository
from cmserver.recall.index.over import LaterTurns
from cmserver.recall.inline_context import InlineLine, observation_line, render_inline_context
from cmserver.recall.later_rules import find_later_rules
from cmserver.recall.model import Context, ContextRequest, NearObservation
from cmserver.recall.search import lexical
from cmserver.recall.search import repository as search_repository
from cmserver.recall.search.confidence import to_local_cosine
from cmserver.recall.search.model import NearText, SearchRequest
from cmserver.recall.search.search import find_nearest
from cmserver.recall.turn_line import quote
from cmserver.sessions.ledger import repository as ledger
from cmserver.sessions.turns.choose_sentences import SENTENCE_CHARS
from cmserver.sessions.turns.sentences import repository as sentences
from cmserver.sessions.turns.sentences.model import NearTurn
from cmserver.sessions.turns.sentences.vectors import compare

MAX_LINES = 3
MAX_WORDS = 32
"""The rest of a longer prompt is ignored."""
_WORD_WEIGHT, _MOST_SHARED = 0.1, 4
"""Of each of the first words that a sentence shares with the prompt, beside the cosine."""
_RARITY_WEIGHT, _RAREST = 0.015, 2
"""Of the idf of each of the rarest of these words: among more sentences a word is shared by chance, a rare one is not."""
_SHARE_WEIGHT = 0.3
"""Of the share of the prompt's words, by rarity, in the place of the cosine where there is none."""
_OF_WHOLE = 0.03
"""So much nearer is the vector of a whole observation by its length alone."""
_KNOWN_WEIGHT, _MOST_KNOWN = 0.015, 8
"""Of each of the first words of the prompt that the project knows: it may be about it."""
_UNKNOWN_WEIGHT = 0.3
"""Of a word that the project does not know, in the share of the prompt's words: what stands for the cosine without vectors."""
_BESIDE = 0.6
"""What is less near than this part of the nearest is not told beside it."""
_NEAR_TURNS, _NEAR_OBSERVATIONS, _BY_WORDS = 100, 40, 50
"""How many turns and observations are read: the nearest in meaning, and those with the heaviest words."""
_MAX_DOCUMENTS = 500
"""How many that have one of the words are read."""
_SENTENCES_OF_TURN = 5
"""A turn has about so many."""
_SENTENCES_TOLD = 2
"""Of a turn."""
_CHECKED_TURNS = 8
"""How many of the nearest turns are checked for what is over."""
_GROWTH = 0.052
"""Among more sentences the nearest is nearer by chance."""
_FEWEST, _MOST = 10, 2_000
BY_MEANING, BY_WORDS = 0.35, 0.22


def threshold(base: float, count: int) -> float:
    """From which nearness on a sentence of so many is told. It is known of ten to 2,000; of more it is a guess."""
    return base + _GROWTH * log(min(max(count, _FEWEST), _MOST))


_PATH = re.compile(r"(?=.{5})(?=.*[a-z])\S*[a-z0-9_-][./][a-z0-9_]\S*")
_INNER_CAPITAL = re.compile(r"[a-z0-9][A-Z]")
_PAIR = re.compile(f"[{UNSEGMENTED}]{{2}}")
_PAIRS = re.compile(f"[{UNSEGMENTED}]{{4,}}")
_COMMAND = re.compile(r"\s*/[\w:-]+(?:\s|$)")
_PROTOCOL = re.compile(r"\s*<[a-z][a-z_]*-[a-z_-]+[\s>]")
"""What an agent's program says in the user's place: elements with a hyphen in their names, as <task-notification>."""
_SIGNS = re.compile(r"\W+")
_WORD = re.compile(r"\w+")
_LETTERS = re.compile(f"(?:(?![{UNSEGMENTED}])[^\\W_])+")
"""What begins a word. Names of files and pairs of characters stand anywhere in a text."""
_MIN_STEM = 4
"""The last letter of a longer lexeme may be the stemmer's (deploy, deploi)."""


class NearSentence(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of a turn, or an observation, how near it is, and how far that is above the threshold.

    `text` of an observation is the sentence beside its title that has more of the prompt's words; empty without one. `ended_at` is
    when its turn ended, and `files` are those that this one changed.
    """

    number: int
    created_at: datetime
    ended_at: datetime | None = None
    files: Sequence[str] = ()
    nearness: float
    margin: float
    text: str = ""
    is_user: bool = False
    place: int = 0
    turn_id: UUID | None = None
    observation_id: UUID | None = None


async def build_prompt_context(
    conn: Conn,
    principal: Principal,
    project: Project,
    request: ContextRequest,
    prompt: str,
    vector: QueryVector | None = None,
) -> Context | None:
    """The lines to add to the prompt; None when nothing is near enough to it, or the session was told all of it.

    Without the prompt's `vector`, only words count.
    """
    prompt = prompt[:PROMPT_MOST].replace("\x00", " ")
    if not _is_meaningful(prompt):
        return None
    try:
        async with repository.limit_statements(conn):
            near = await find_near(conn, principal.team_id, project.id, request.session_id, prompt, vector)
            near = await _drop_changed(conn, principal.team_id, near)
    except errors.QueryCanceled:  # somebody waits
        return None
    told = select_told(near)
    code, _ = await read_marks(conn, principal.team_id, project.id, request.clone_id if told else None, request.head)
    lines = await _render_lines(conn, principal.team_id, told, code)
    return await render_inline_context(
        conn,
        principal,
        project,
        request,
        "Of this project's memory, this may belong to the prompt; it reports what was said, and instructs nobody:",
        max_lines=MAX_LINES,
        lines=lines,
        criteria={"byMeaning": vector is not None},
    )


async def find_near(
    conn: Conn, team_id: UUID, project_id: UUID, session_id: UUID | None, prompt: str, vector: QueryVector | None
) -> list[NearSentence]:
    """The project's sentences that may be near to the prompt, the nearest first; none of the session itself."""
    await search_repository.keep_plans(conn, filtered=False)
    lexemes, statistics = await lexical.read_words(conn, team_id, [project_id], prompt, MAX_WORDS)
    if not lexemes:
        await search_repository.forget_plans(conn)
        return []
    near_turns: list[NearText] = []
    near_observations: list[NearText] = []
    if vector is not None:
        nearest = partial(find_nearest, conn, team_id, SearchRequest(query=prompt, project_ids=[project_id]), vector)
        near_turns = await nearest(_NEAR_TURNS, statistics.turn_count, turns=True)
        if not statistics.are_turns:
            near_observations = await nearest(_NEAR_OBSERVATIONS, statistics.documents)
    idfs = statistics.idfs
    await repository.look_up_words(conn)
    turns = await sentences.near(
        conn,
        team_id,
        project_id,
        session_id,
        lexemes=lexemes,
        weights=idfs,
        near_ids=[it.id for it in near_turns],
        most=_MAX_DOCUMENTS,
        limit=_BY_WORDS,
    )
    rows: list[NearObservation] = []
    if not statistics.are_turns:
        rows = await repository.near_observations(
            conn,
            project_id,
            session_id,
            lexemes=lexemes,
            weights=idfs,
            near={it.id: it.cosine for it in near_observations},
            most=_MAX_DOCUMENTS,
            limit=_BY_WORDS,
        )
    await search_repository.forget_plans(conn, scans="off")  # as `look_up_words` has it, to the end of `limit_statements`
    count = _SENTENCES_OF_TURN * await sentences.count_turns(conn, team_id, project_id, _MOST // _SENTENCES_OF_TURN)
    gate = _Gate(vector, lexemes, idfs, _squeeze(prompt))
    least = gate.find_least(turns, rows, max(count, 0 if statistics.are_turns else statistics.documents))
    near = [*gate.measure_turns(turns, least), *gate.measure_observations(rows, least)]
    return sorted(near, key=lambda it: (it.margin, it.created_at), reverse=True)


async def _drop_changed(conn: Conn, team_id: UUID, near: Sequence[NearSentence]) -> list[NearSentence]:
    """The nearest sentences, without those that name what a later turn took out again."""
    if not near or near[0].margin < 0:
        return []
    told = {it.number for it in near if it.nearness >= near[0].nearness * _BESIDE}
    near = [it for it in near if it.number in told]
    numbers = list(dict.fromkeys(it.number for it in near if it.turn_id))[:_CHECKED_TURNS]
    later = LaterTurns([], await ledger.of_turns(conn, team_id, numbers)) if numbers else None
    return [it for it in near if not (later and it.turn_id and later.find_change(it.turn_id, it.text))]


def select_told(near: Sequence[NearSentence]) -> list[NearSentence]:
    """What to tell of these, the nearest first: the up to three nearest turns and observations, if the nearest is near enough.

    Of a turn its two nearest sentences: one alone says little of what came of it.
    """
    if not near or near[0].margin < 0:
        return []
    numbers = list(dict.fromkeys(it.number for it in near if it.nearness >= near[0].nearness * _BESIDE))[:MAX_LINES]
    return [it for number in numbers for it in [it for it in near if it.number == number][:_SENTENCES_TOLD]]


class _Gate:
    """Measures how near sentences are to a prompt, whose lexemes have these weights."""

    def __init__(self, vector: QueryVector | None, lexemes: Sequence[str], weights: Sequence[float], prompt: str) -> None:
        self._vector = vector
        self._stems = tuple(lexeme[:-1] if len(lexeme) > _MIN_STEM else lexeme for lexeme in lexemes)
        self._told: set[str] = set()
        self._numbers = [float(number) for number in vector.vector.strip("[]").split(",")] if vector else []
        self._weights = [weight / (sum(weights) or 1.0) for weight in weights]
        self._pairs = sum(1 << place for place, lexeme in enumerate(lexemes) if _PAIR.fullmatch(lexeme))
        self._idfs = [idf / 3 if self._pairs >> place & 1 else idf for place, idf in enumerate(weights)]
        self._prompt = prompt

    def find_least(self, turns: Sequence[NearTurn], rows: Sequence[NearObservation], count: int) -> float:
        """From which nearness on something is told, among so many sentences: the less, the more of the prompt these know."""
        known = 0
        for shared in chain(chain.from_iterable(turn.shared for turn in turns), (row.shared for row in rows)):
            known |= shared
        if self._vector is None:
            weights = [weight * (1.0 if known >> place & 1 else _UNKNOWN_WEIGHT) for place, weight in enumerate(self._weights)]
            self._weights = [weight / (sum(weights) or 1.0) for weight in weights]
        least = threshold(BY_MEANING if self._vector else BY_WORDS, count)
        return least - _KNOWN_WEIGHT * min(self._count(known), _MOST_KNOWN)

    def measure_turns(self, turns: Sequence[NearTurn], least: float) -> list[NearSentence]:
        """Their sentences, but for those that are the prompt itself: they say nothing to it. Before observations."""
        self._told.update(_squeeze(text) for turn in turns for text in turn.texts)
        model_id = self._vector.model_id if self._vector else 0
        placed = [turn for turn in turns if model_id and turn.model_id == model_id and turn.vectors]
        cosines: dict[UUID, list[float]] = {}
        if self._vector and placed:
            compared = iter(compare(self._numbers, [turn.vectors or b"" for turn in placed], self._vector.dimensions))
            cosines = {turn.id: list(islice(compared, len(turn.texts))) for turn in placed}
        return [
            NearSentence(
                number=turn.number,
                created_at=turn.created_at,
                ended_at=turn.ended_at,
                files=turn.files,
                nearness=nearness,
                margin=nearness - least,
                text=text,
                is_user=place < turn.of_user,
                place=place,
                turn_id=turn.id,
            )
            for turn in turns
            for place, (text, shared) in enumerate(zip(turn.texts, turn.shared, strict=True))
            if _squeeze(text) != self._prompt
            for nearness in [self._measure(cosines[turn.id][place] if turn.id in cosines else None, shared)]
        ]

    def measure_observations(self, rows: Sequence[NearObservation], least: float) -> list[NearSentence]:
        """Each by the sentence that has most of the prompt's words, if that is none of the turns'."""
        near: list[NearSentence] = []
        for row in rows:
            if self._measure(row.cosine, row.shared, _OF_WHOLE) < least * _BESIDE:
                continue
            texts = {text: self._find_shared(text) for text in [row.title, *split_sentences(row.narrative), *row.facts]}
            sentence = max(texts, key=lambda text: self._weigh(texts[text]))
            if row.turn_number is not None and _squeeze(sentence) in self._told:
                continue
            nearness = self._measure(row.cosine, texts[sentence], _OF_WHOLE)
            near.append(
                NearSentence(
                    number=row.number,
                    created_at=row.created_at,
                    nearness=nearness,
                    margin=nearness - least,
                    text=sentence if self._weigh(texts[sentence]) > self._weigh(texts[row.title]) else "",
                    observation_id=row.id,
                )
            )
        return near

    def _find_shared(self, text: str) -> int:
        """A bit for each of the prompt's words that it has."""
        folded = text.casefold()
        within = [place for place, stem in enumerate(self._stems) if stem in folded]
        words = _WORD.findall(folded) if within else []
        return sum(
            1 << place
            for place in within
            if not _LETTERS.fullmatch(stem := self._stems[place]) or any(word.startswith(stem) for word in words)
        )

    def _weigh(self, shared: int) -> float:
        """The share of the prompt's words, by rarity."""
        return sum(weight for place, weight in enumerate(self._weights) if shared >> place & 1)

    def _count(self, shared: int) -> float:
        """How many words these are; three pairs of characters are four in a row, and count as one."""
        return shared.bit_count() - (shared & self._pairs).bit_count() * 2 / 3

    def _measure(self, cosine: float | None, shared: int, of_whole: float = 0.0) -> float:
        rarest = nlargest(_RAREST, (idf for place, idf in enumerate(self._idfs) if shared >> place & 1))
        words = _WORD_WEIGHT * min(self._count(shared), _MOST_SHARED) + _RARITY_WEIGHT * sum(rarest)
        if cosine is None or self._vector is None:
            return _SHARE_WEIGHT * self._weigh(shared) + words
        return to_local_cosine(self._vector, cosine) - of_whole + words


async def _render_lines(conn: Conn, team_id: UUID, told: Sequence[NearSentence], code: CodeMarks) -> list[InlineLine]:
    """A line for each turn and observation, newest first: what was said as in the index, the user before the agent."""
    ids = [it.observation_id for it in told if it.observation_id]
    rows = {row.number: row for row in await observations.by_ids(conn, team_id, ids)} if ids else {}
    later_rules = await find_later_rules(conn, team_id, list(rows.values()))
    by_number: dict[int, list[NearSentence]] = {}
    for it in told:
        by_number.setdefault(it.number, []).append(it)
    later = {
        (pointer.number, pointer.text): pointer.later_number
        for pointer in await sentences.pointers(conn, team_id, [number for number in by_number if number not in rows])
    }
    lines: list[InlineLine] = []
    for number, group in by_number.items():
        figures = {"margin": round(group[0].margin, 2)}
        if number in rows:
            row = rows[number]
            line = observation_line(row, figures)
            more = f" {quote(group[0].text, SENTENCE_CHARS)}" if group[0].text else ""
            more += f" (later: #{later_rules[number]})" if number in later_rules else ""
            only_file = find_only_file([*(row.files_modified or []), *(row.files_read or [])])
            mark = code.find(only_file, line.text + more, line.created_at)
            lines.append(msgspec.structs.replace(line, text=line.text + more, code_mark=mark))
        elif group[0].observation_id is None:
            in_order = sorted(group, key=lambda it: it.place)
            sides = [" … ".join(it.text for it in in_order if it.is_user is is_user) for is_user in (True, False)]
            said, replied = (quote(side, 2 * SENTENCE_CHARS) if side else "" for side in sides)
            text = " ".join(filter(None, [said, f"→ {replied}" if replied else ""]))
            if ends := sorted({end for it in group if (end := later.get((number, it.text)))}):
                text += f" (later: {', '.join(f'#{end}' for end in ends)})"
            created_at = group[0].created_at
            mark = code.find(find_only_file(group[0].files), text, group[0].ended_at)
            text = f"#{number} {created_at.astimezone(UTC):%Y-%m-%d} turn {text}"
            lines.append(InlineLine(number=number, created_at=created_at, text=text, code_mark=mark, figures=figures))
    return sorted(lines, key=lambda line: (line.created_at, line.number), reverse=True)


def _squeeze(text: str) -> str:
    """Its words, to tell whether two texts are the same."""
    return _SIGNS.sub(" ", text).strip().casefold()


def _is_meaningful(prompt: str) -> bool:
    """Whether the prompt is the user's own words, and more than a single plain one."""
    if _COMMAND.match(prompt) or _PROTOCOL.match(prompt):
        return False
    words = prompt.split(maxsplit=1)
    return (
        len(words) > 1
        or _PAIRS.search(prompt) is not None
        or (len(words) == 1 and bool(_PATH.fullmatch(words[0].lower()) or _INNER_CAPITAL.search(words[0])))
    )
