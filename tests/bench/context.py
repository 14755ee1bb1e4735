"""The index at a session's start: how long it takes to make, what it costs, and how much of it is of use."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import uuid4

import httpx
import msgspec
import psycopg

from cmserver.observations.model import estimate_tokens
from cmserver.recall.index.layout import IndexFrame
from cmserver.recall.index.relevance import WEIGHTS, Weights
from cmserver.recall.index.selection import ComposedIndex, IndexInput, compose_index
from cmserver.recall.model import ContextBudget, IndexRow, SummaryText
from tests.bench.crowd import Crowd, crowded
from tests.bench.measure import Aim, Figure, percentile, spread
from tests.bench.scale import Scale
from tests.bench.world import World, role
from tests.recall.history.measure import Later, history, prompts

HOW = (
    "`cmserver run --role api` on a database with 100,000 observations: 10,000 in the project, as many in each of four others of "
    "its team and in five of another team, with everything that belongs to the first. Each request is sent 200 times in all, one "
    "after the other over one connection; the figure is its p99. Tokens and shares are of the indexes that the sessions of "
    "tests/recall/history would get at their start (14 sessions, a history of 164 observations and summaries, both halves of the "
    "set): a line is useful when one of the session's prompts is labelled with its number, and the share is that of the lines' "
    "characters. Yardstick of the shares is the same index, filled with the newest; on the half that no weight was chosen by, the "
    "figures stand in the notes."
)
Ask = Callable[[], httpx.Response]
_NEWEST_FIRST = Weights(files=0, folders=0, session=0, team=0, type={})
# As if four more projects of the team, and five of another, had each lived through the same; every 1,000th is shared.
_OTHERS = """
    SET session_replication_role = replica;
    WITH red AS (INSERT INTO teams (id, name) VALUES (uuidv7(), 'red') RETURNING id)
    INSERT INTO projects (id, team_id, canonical_id, name)
    SELECT uuidv7(), CASE WHEN n < 5 THEN (SELECT team_id FROM projects LIMIT 1) ELSE (SELECT id FROM red) END, 'p' || n, 'p' || n
      FROM generate_series(1, 9) n;
    INSERT INTO observations (id, number, project_id, team_id, kind, type, scope, origin, title, narrative, facts, files_modified,
                              content, content_search, content_words, read_tokens, discovery_tokens, created_at, updated_at)
    SELECT uuidv7(o.created_at - now()), o.number + substr(p.name, 2)::int * 1000000, p.id, p.team_id, o.kind, o.type,
           CASE WHEN o.number % 1000 = 0 THEN 'team' ELSE 'project' END, o.origin, o.title, o.narrative, o.facts, o.files_modified,
           o.content, o.content_search, o.content_words, o.read_tokens, o.discovery_tokens, o.created_at, o.updated_at
      FROM observations o, projects p WHERE p.name LIKE 'p_';
    VACUUM ANALYZE;
"""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a session of the set would be told, and what it would have needed."""

    composed: ComposedIndex
    useful: set[int]

    @property
    def share(self) -> float:
        """Of the characters of its lines those of useful ones, in percent."""
        sizes = {line.scored.row.number: len(line.text) + 1 for line in self.composed.lines}
        return 100 * sum(size for number, size in sizes.items() if number in self.useful) / sum(sizes.values())

    @property
    def found(self) -> float:
        """Of what is useful that which has a line, in percent."""
        lines = {line.scored.row.number for line in self.composed.lines}
        return 100 * len(self.useful & lines) / len(self.useful)


def run(world: World, scale: Scale) -> list[Figure]:
    """Over HTTP in rounds; what is told of the labelled set comes out the same every time."""
    crowd = crowded(world, max(1000, scale.crowd // 20))
    with psycopg.connect(crowd.place.superuser_url, autocommit=True) as conn:
        for statement in filter(str.strip, _OTHERS.split(";\n")):
            conn.execute(statement.encode())
    with role(world, crowd.place, "api") as port:
        figures = _asked(crowd, port, scale)
    return [*figures, *_of_the_set(scale.rounds)]


def _asked(crowd: Crowd, port: int, scale: Scale) -> list[Figure]:
    base = f"/v1/context?project={crowd.place.project_id}&session={crowd.place.sessions[0]}"
    compacted = f"/v1/context?project={crowd.place.project_id}&session={crowd.session_id}"
    files = ",".join(f"src/orders/file{number}.py" for number in range(20))
    headers = {"Authorization": f"Bearer {crowd.place.key}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:

        def got(path: str) -> Ask:
            return lambda: client.get(path)

        asks = {
            "GET /v1/context, a session starts": (30, got(f"{base}&source=startup")),
            "GET /v1/context, with 20 files under change": (30, got(f"{base}&source=startup&changedFiles={files}")),
            "GET /v1/context, after a compaction": (30, got(f"{compacted}&source=compact")),
            "POST /v1/hooks/claude-code, a prompt": (50, lambda: _prompted(client, crowd)),
        }
        beside = got(f"/v1/observations/{crowd.number}")
        return [_figure(name, bound, ask, beside, scale) for name, (bound, ask) in asks.items()]


def _prompted(client: httpx.Client, crowd: Crowd) -> httpx.Response:
    """A prompt with names that some observations have and words that all of them have, each in a session of its own."""
    session = str(uuid4())
    prompt = f"Why is the pause between two attempts of the orders client doubled in file{int(session[:6], 16) % 997}.py?"
    body = {"hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": "/src", "prompt": prompt}
    return client.post("/v1/hooks/claude-code", json=body, headers={"X-Cmserver-Project": str(crowd.place.project_id)})


def _figure(name: str, bound: float, ask: Ask, beside: Ask, scale: Scale) -> Figure:
    pairs: list[tuple[float, float]] = []
    all_ms: list[float] = []
    _milliseconds(ask, 3)  # what it needs of the database is in memory now
    for _ in range(scale.rounds):
        mine, other = _milliseconds(ask, scale.asked), _milliseconds(beside, scale.asked)
        pairs.append((percentile(mine, 99), percentile(other, 99)))
        all_ms += mine
    aim = Aim(of="median", at_least=False, bound=bound)
    return Figure(name=name, unit="ms", yardstick="one observation", pairs=pairs, aim=aim, note=spread(all_ms))


def _milliseconds(ask: Ask, times: int) -> list[float]:
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        ask().raise_for_status()
        taken.append((time.perf_counter() - began) * 1000)
    return taken


# -- the labelled set


def _of_the_set(rounds: int) -> list[Figure]:
    ours, newest = told(WEIGHTS), told(_NEWEST_FIRST)
    unseen, unseen_newest = told(WEIGHTS, half="test"), told(_NEWEST_FIRST, half="test")
    shown = [[line.scored.row for line in one.composed.lines] for one in ours]
    lines = sum(map(len, shown))
    per_line = sum(estimate_tokens(one.composed.text) for one in ours) / lines
    whole = sum(row.read_tokens for rows in shown for row in rows) / lines

    def compared(name: str, of: str, at_least: float) -> Figure:
        pair = _mean(ours, of), _mean(newest, of)
        note = f"half `test`: {_mean(unseen, of):.1f} %, with the newest {_mean(unseen_newest, of):.1f} %"
        aim = Aim(of="ratio", at_least=True, bound=at_least)
        return Figure(name=name, unit="%", yardstick="the newest first", pairs=[pair] * rounds, aim=aim, note=note)

    return [
        Figure(
            name="index, per observation shown",
            unit="tokens",
            yardstick="reading it whole",
            pairs=[(per_line, whole)] * rounds,
            aim=Aim(of="median", at_least=False, bound=40),
            note="the whole text, with its frame and the newest summary, by its lines",
        ),
        compared("index, share of its lines that is useful", "share", 1.4),
        compared("index, useful observations that have a line", "found", 1.4),
    ]


def told(weights: Weights, *, half: str | None = None) -> list[Told]:
    """What each session of the set (or of a half of it) that needed something would be told."""
    rows, texts = _rows()
    return [
        Told(composed=_composed(session, rows, texts, weights), useful=useful)
        for session in prompts()
        if half in {None, session.half} and (useful := {number for prompt in session.prompts for number in prompt.useful})
    ]


def _mean(every: Sequence[Told], of: str) -> float:
    return sum(float(getattr(one, of)) for one in every) / len(every)


def _composed(session: Later, rows: Sequence[IndexRow], texts: dict[int, SummaryText], weights: Weights) -> ComposedIndex:
    news = next(row for row in rows if row.kind == "summary")
    material = IndexInput(
        rows=rows,
        newest_at=[row.created_at for row in rows],
        summary=news,
        summary_text=texts[news.number],
        changed_files=session.changed_files,
        continued_session_id=rows[0].server_session_id,
    )
    about = IndexFrame(
        project_name="shop", reason="startup", reader="~/.config/cmserver/clients/claude-code/hook", now=session.started_at
    )
    return compose_index(about, ContextBudget(), material, weights)


def _rows() -> tuple[list[IndexRow], dict[int, SummaryText]]:
    """The history, newest first, and what its summaries say."""
    rows: list[IndexRow] = []
    texts: dict[int, SummaryText] = {}
    project = uuid4()
    for session in history().sessions:
        ours = uuid4()
        at = session.started_at

        def row(number: int, title: str, content: str, *, type_: str, files: list[str], kind: str = "observation") -> IndexRow:
            return IndexRow(
                number=number,
                project_id=project,
                server_session_id=ours,  # noqa: B023 - called at once
                scope="project",
                kind=kind,
                type=type_,
                title=title,
                files=files[:12],
                read_tokens=estimate_tokens(content),
                discovery_tokens=0,
                created_at=at,  # noqa: B023 - called at once
            )

        for one in session.observations:
            at = session.started_at + timedelta(minutes=one.minute)
            content = "\n\n".join([one.title, one.subtitle, one.narrative, *one.facts])
            rows.append(row(one.number, one.title, content, type_=one.type, files=one.files_modified + one.files_read))
        if summed := session.summary:
            at += timedelta(minutes=5)
            said: dict[str, str | None] = {name: getattr(summed, name) for name in _SUMMARY}
            content = "\n\n".join(filter(None, said.values()))
            rows.append(row(summed.number, summed.request, content, type_="change", files=[], kind="summary"))
            texts[summed.number] = SummaryText(summary=said, content=content)
    return sorted(rows, key=lambda row: row.created_at, reverse=True), texts


_SUMMARY = ("request", "investigated", "learned", "completed", "next_steps")
