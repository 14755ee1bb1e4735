"""Where a corpus is asked: the real program with the corpus in it, or one that runs already."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from uuid import UUID

import httpx
import msgspec
import psycopg

from cmserver.base.ids import epoch_ms
from tests.bench.recall.corpus import Corpus, Document, Session
from tests.bench.world import role, value, world

_EMBEDDED_SECONDS = 900.0
_AT_ONCE = 100
_NAME = "corpusKey"
_WAITING = """
    SELECT count(*) FROM observations o
     WHERE EXISTS (SELECT FROM pg_extension WHERE extname = 'vector')
       AND NOT EXISTS (SELECT FROM observation_embeddings e JOIN embedding_models m ON m.id = e.model_id AND m.state = 'current'
                        WHERE e.observation_id = o.id AND (e.embedding IS NOT NULL OR e.next_at = 'infinity'))
"""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A server with the corpus in it. Without a `database` only what can be asked over HTTP is asked."""

    url: str
    key: str
    database: str | None

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=60)


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where the corpus is: keys of documents by the number and id of their observations, and projects by their names."""

    by_number: dict[int, str]
    by_id: dict[UUID, str]
    projects: dict[str, UUID]


@contextmanager
def served(settings: Mapping[str, object]) -> Generator[Served]:
    """The real program on a PostgreSQL of its own, gone after the block."""
    with world() as here:
        place = here.place()
        with role(here, place, "all", **{"log_level": "error", **settings}) as port:
            try:
                yield Served(url=f"http://127.0.0.1:{port}", key=place.key, database=place.superuser_url)
            except RuntimeError as error:
                said = "".join(one.read_text(errors="replace") for one in here.folder.glob("*.log"))
                error.add_note(f"The server said:\n{said[-5000:]}")
                raise


def ingest(client: httpx.Client, corpus: Corpus) -> None:
    """Everything: sessions with their prompts, and their observations with the times at which they were made."""
    of_session = {name: list(found) for name, found in groupby(sorted(corpus.documents, key=_session), key=_session)}
    for session in sorted(corpus.sessions, key=lambda one: one.started_at):
        _ingest(client, session, of_session.get(session.name, []))


def wait_until_embedded(database: str) -> None:
    """RuntimeError when it takes too long. Without pgvector, and for what the embedder has refused for good, nobody waits."""
    end = time.monotonic() + _EMBEDDED_SECONDS
    while waiting := value(database, _WAITING):
        if time.monotonic() > end:
            raise RuntimeError(f"{waiting} observations have no embedding after {_EMBEDDED_SECONDS:.0f} seconds.")
        time.sleep(0.2)


def mark_summaries(database: str, corpus: Corpus) -> None:
    """No door takes a summary: only generation makes them. Here they came in by hand, and are made what they are."""
    keys = [one.key for one in corpus.documents if one.is_summary]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("UPDATE observations SET kind = 'summary' WHERE metadata ->> %s = ANY(%s)", [_NAME, keys])


def analyse(database: str) -> None:
    """As autovacuum would have, by and by."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("VACUUM ANALYZE")


def stored(client: httpx.Client, corpus: Corpus) -> Stored:
    """ValueError when the server does not have the whole corpus."""
    found = Stored(by_number={}, by_id={}, projects={})
    sessions = {one.name: one for one in corpus.sessions}
    project_of = {one.key: sessions[one.session].project for one in corpus.documents}
    for one in _listed(client):
        key = str(one.metadata.get(_NAME, ""))
        if key in project_of:
            found.by_number[one.number], found.by_id[one.id] = key, key
            found.projects[project_of[key]] = one.project_id
    missing = len(project_of) - len(found.by_id)
    if missing:
        raise ValueError(f"{missing} documents of the corpus {corpus.name} are not on this server.")
    return found


class _Listed(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    id: UUID
    number: int
    project_id: UUID
    metadata: dict[str, object]


class _Page(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    observations: list[_Listed]
    next_cursor: str | None


def _listed(client: httpx.Client) -> Iterator[_Listed]:
    cursor: str | None = None
    while True:
        params = {"limit": "200", **({"cursor": cursor} if cursor else {})}
        page = msgspec.json.decode(client.get("/v1/observations", params=params).raise_for_status().content, type=_Page)
        yield from page.observations
        cursor = page.next_cursor
        if cursor is None:
            return


class _Started(msgspec.Struct, frozen=True, kw_only=True):
    class Made(msgspec.Struct, frozen=True, kw_only=True):
        id: UUID

    session: Made


def _ingest(client: httpx.Client, session: Session, documents: Sequence[Document]) -> None:
    start = {
        "projectId": session.project,
        "externalSessionId": session.name,
        "contentSessionId": session.name,
        "platformSource": session.agent,
    }
    ours = msgspec.json.decode(_post(client, "/v1/sessions/start", start), type=_Started).session.id
    prompts = [
        {
            "projectId": session.project,
            "serverSessionId": str(ours),
            "eventType": "UserPromptSubmit",
            "occurredAtEpoch": epoch_ms(session.started_at),
            "sourceEventId": f"{session.name}-prompt-{place}",
            "payload": {"prompt": prompt},
        }
        for place, prompt in enumerate(session.prompts)
    ]
    if prompts:
        _post(client, "/v1/events/batch?generate=false", prompts)
    ordered = sorted(documents, key=lambda one: one.created_at)
    for first in range(0, len(ordered), _AT_ONCE):
        _post(client, "/v1/observations/batch", [_sent(session, ours, one) for one in ordered[first : first + _AT_ONCE]])


def _sent(session: Session, ours: UUID, one: Document) -> dict[str, object]:
    fields: dict[str, object] = {
        "projectId": session.project,
        "sessionId": str(ours),
        "createdAtEpoch": epoch_ms(one.created_at),
        "type": one.type,
        "title": one.title,
        "subtitle": one.subtitle,
        "narrative": one.narrative,
        "content": one.content,
        "facts": one.facts,
        "concepts": one.concepts,
        "filesRead": one.files_read,
        "filesModified": one.files_modified,
        "metadata": {_NAME: one.key},
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}


def _post(client: httpx.Client, path: str, body: object) -> bytes:
    answered = client.post(path, content=msgspec.json.encode(body), headers={"Content-Type": "application/json"})
    if answered.is_error:
        raise RuntimeError(f"POST {path} was answered with {answered.status_code}: {answered.text[:500]}")
    return answered.content


def _session(one: Document) -> str:
    return one.session
