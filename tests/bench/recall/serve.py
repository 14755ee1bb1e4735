"""Where corpora are asked: the real program with the corpora in it, or one that runs already."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from uuid import UUID

import httpx
import msgspec
import psycopg

from cmserver.base.ids import epoch_ms, new_id
from tests.bench.load import ROOT
from tests.bench.recall.corpus import Corpus, Document, Session
from tests.bench.world import World, free_port, program, value

_EMBEDDED_SECONDS = 900.0
_AT_ONCE = 100
_NAME = "corpusKey"
_WAITING = """
    SELECT count(*) FROM (SELECT id FROM observations UNION ALL SELECT id FROM turns WHERE ended_at IS NOT NULL) t
     WHERE EXISTS (SELECT FROM pg_extension WHERE extname = 'vector')
       AND NOT EXISTS (SELECT FROM observation_embeddings e JOIN embedding_models m ON m.id = e.model_id AND m.state = 'current'
                        WHERE coalesce(e.observation_id, e.turn_id) = t.id AND (e.embedding IS NOT NULL OR e.next_at = 'infinity'))
"""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A server with corpora in it. Without a `database` only what can be asked over HTTP is asked."""

    url: str
    key: str
    database: str | None

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=60, trust_env=False)


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where a corpus is: keys of documents by the number and id of their observations, and projects by their names."""

    by_number: dict[int, str]
    by_id: dict[UUID, str]
    projects: dict[str, UUID]


class Host:
    """A database of its own, which servers are started on, one after the other."""

    def __init__(self, world: World, tree: Path = ROOT) -> None:
        self._world = world
        self._tree = tree
        self._name = f"recall_{secrets.token_hex(4)}"
        self._key = f"cms_{new_id().hex}_{secrets.token_hex(24)}"
        world.embedded.create_database(self._name)

    @contextmanager
    def serve(self, settings: Mapping[str, object], constants: Mapping[str, float]) -> Generator[Served]:
        """The real program, until the end of the block; with `constants` in its score instead of its own."""
        module = [sys.executable, "-m"]
        command = [*module, "cmserver", "run"]
        if constants:
            pairs = [f"{name}={value}" for name, value in constants.items()]
            command = [*module, "tests.bench.recall.with_constants", *pairs, "--", "run"]
        url, superuser_url = self._world.embedded.url_for(self._name), self._world.embedded.url_for(self._name, role="postgres")
        given = {"database_url": url, "bootstrap_key": self._key, "log_format": "json", "log_level": "error", **settings}
        port, folder = free_port(), self._world.free_folder()
        with program(command, given, folder, port=port, tree=self._tree):
            try:
                yield Served(url=f"http://127.0.0.1:{port}", key=self._key, database=superuser_url)
            except RuntimeError as error:
                log = folder.with_name(f"{folder.name}.log").read_text(errors="replace")
                error.add_note(f"The log of the server ends with:\n{log[-5000:]}")
                raise


def ingest(client: httpx.Client, *corpora: Corpus) -> None:
    """Everything: sessions with their prompts, and their observations with the times at which they were made.

    A session that several corpora have goes in once.
    """
    sessions = {session.name: session for corpus in corpora for session in corpus.sessions}
    documents = {document.key: document for corpus in corpora for document in corpus.documents}
    of_session = {name: list(group) for name, group in groupby(sorted(documents.values(), key=_session), key=_session)}
    for session in sorted(sessions.values(), key=lambda session: session.started_at):
        _ingest(client, session, of_session.get(session.name, []))


def wait_until_embedded(database: str) -> None:
    """RuntimeError when it takes too long. Without pgvector, and for what the embedder has refused for good, nobody waits."""
    end = time.monotonic() + _EMBEDDED_SECONDS
    while waiting := value(database, _WAITING):
        if time.monotonic() > end:
            raise RuntimeError(f"{waiting} texts have no embedding after {_EMBEDDED_SECONDS:.0f} seconds.")
        time.sleep(0.2)


def mark_summaries(database: str, corpora: Sequence[Corpus]) -> None:
    """No door takes a summary: only generation makes them. Here they came in by hand, and are made what they are."""
    keys = [document.key for corpus in corpora for document in corpus.documents if document.is_summary]
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("UPDATE observations SET kind = 'summary' WHERE metadata ->> %s = ANY(%s)", [_NAME, keys])


def analyse(database: str) -> None:
    """As autovacuum would have, by and by."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("VACUUM ANALYZE")


def find_stored(client: httpx.Client, corpus: Corpus) -> Stored:
    """ValueError when the server does not have the whole corpus."""
    stored = Stored(by_number={}, by_id={}, projects={})
    sessions = {session.name: session for session in corpus.sessions}
    project_of = {document.key: sessions[document.session].project for document in corpus.documents}
    for listed in _list_observations(client):
        key = str(listed.metadata.get(_NAME, ""))
        if key in project_of:
            stored.by_number[listed.number], stored.by_id[listed.id] = key, key
            stored.projects[project_of[key]] = listed.project_id
    missing = len(project_of) - len(stored.by_id)
    if missing:
        raise ValueError(f"{missing} documents of the corpus {corpus.name} are not on this server.")
    return stored


class _Listed(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    id: UUID
    number: int
    project_id: UUID
    metadata: dict[str, object]


class _Page(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    observations: list[_Listed]
    next_cursor: str | None


def _list_observations(client: httpx.Client) -> Iterator[_Listed]:
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
    ordered = sorted(documents, key=lambda document: document.created_at)
    for first in range(0, len(ordered), _AT_ONCE):
        _post(client, "/v1/observations/batch", [_sent(session, ours, document) for document in ordered[first : first + _AT_ONCE]])


def _sent(session: Session, ours: UUID, document: Document) -> dict[str, object]:
    fields: dict[str, object] = {
        "projectId": session.project,
        "sessionId": str(ours),
        "createdAtEpoch": epoch_ms(document.created_at),
        "type": document.type,
        "title": document.title,
        "subtitle": document.subtitle,
        "narrative": document.narrative,
        "content": document.content,
        "facts": document.facts,
        "concepts": document.concepts,
        "filesRead": document.files_read,
        "filesModified": document.files_modified,
        "metadata": {_NAME: document.key},
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}


def _post(client: httpx.Client, path: str, body: object) -> bytes:
    answered = client.post(path, content=msgspec.json.encode(body), headers={"Content-Type": "application/json"})
    if answered.is_error:
        raise RuntimeError(f"POST {path} was answered with {answered.status_code}: {answered.text[:500]}")
    return answered.content


def _session(document: Document) -> str:
    return document.session
