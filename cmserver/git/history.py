"""Takes over a repository's history as a first memory, and removes it again.

A commit is an observation of origin `git`: found as others are, told as history. It is no rule, no open end and no repeat of what a
person says, and nothing is merged with it by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import msgspec

from cmserver.access import announce, audit
from cmserver.access.model import Principal
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn
from cmserver.git import repository
from cmserver.git.model import (
    AUTHOR_MOST,
    BODY_MOST,
    COMMIT,
    DOCUMENT,
    FILES_MOST,
    KEY,
    CommitMessage,
    RepositoryDocument,
    SkippedCommit,
)
from cmserver.git.wire import CommitIn, DocumentIn
from cmserver.observations import repository as observations
from cmserver.observations.model import Correction, NewObservation, compose, estimate_tokens
from cmserver.observations.tidy import tidy_line, tidy_list, tidy_text
from cmserver.observations.write import correct, delete_found, record_deleted
from cmserver.redaction.clean import clean_aside

_IMPORTANCE = 0.3
_SKEW = timedelta(minutes=5)
_YEAR_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_TRAILER = re.compile(r"^(?P<name>[A-Z][A-Za-z]*(?:-[A-Za-z]+)*): (?P<value>\S.*)$")
_PEOPLE = {"co-authored-by", "reviewed-by", "acked-by", "tested-by", "reported-by", "suggested-by", "helped-by"}
_ADDRESS = re.compile(r"\s*<[^<>]*>\s*$")
_TICKET = re.compile(r"(?<![\w/#-])(?:[A-Z][A-Z0-9]{1,9}-\d{1,6}|(?:[A-Za-z0-9][\w.-]*/[\w.-]+)?#\d{1,7})(?![\w-])")
_NO_TICKETS = re.compile(r"(?:UTF|ISO|SHA|RFC|CVE|AES|RSA|MD|EC|UCS|BIG|CP|HTTP|TLS|SSL|X|ASCII|GPT|PEP)-\d+")
_TICKETS_MOST, _PEOPLE_MOST = 10, 5
_HASH_CHARS = 7
_HEADING = re.compile(r"^#\s+(\S.*)$", re.MULTILINE)


class TakenHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a part of a history; see `HistoryImportOut`."""

    taken: int
    known: int
    documents: int
    skipped: list[SkippedCommit]


async def clean_commits(sent: Sequence[CommitIn], *, size_bytes: int) -> tuple[list[CommitMessage], list[SkippedCommit]]:
    """The commits without secrets and private passages, cut to what is kept; and those that cannot be stored."""
    cleaned = await clean_aside([[it.subject, it.body, it.author, it.files] for it in sent], size_bytes=size_bytes, at="$.commits")
    commits: list[CommitMessage] = []
    skipped: list[SkippedCommit] = []
    for it, values in zip(sent, cast("list[tuple[str, str, str, list[str]]]", cleaned.value), strict=True):
        subject, body, author, files = values
        authored_at = _read_time(it.authored_at_epoch)
        if authored_at is None or not subject.strip():
            reason = "Its time is before 1970 or in the future." if authored_at is None else "It has no message."
            skipped.append(SkippedCommit(hash=it.hash, reason=reason))
            continue
        commits.append(
            CommitMessage(
                hash=it.hash,
                subject=subject,
                body=body.strip()[:BODY_MOST].rstrip(),
                author=_ADDRESS.sub("", author)[:AUTHOR_MOST].strip(),
                files=files[:FILES_MOST],
                file_count=max(it.file_count, len(files)),
                authored_at=authored_at,
            )
        )
    return commits, skipped


async def clean_documents(sent: Sequence[DocumentIn], *, size_bytes: int) -> list[RepositoryDocument]:
    """The documents without secrets and private passages; none of which nothing is left."""
    cleaned = await clean_aside([[it.path, it.text] for it in sent], size_bytes=size_bytes, at="$.documents")
    texts = cast("list[tuple[str, str]]", cleaned.value)
    return [
        RepositoryDocument(path=path, blob=it.blob, text=text.strip())
        for it, (path, text) in zip(sent, texts, strict=True)
        if text.strip()
    ]


async def take_history(
    conn: Conn,
    principal: Principal,
    project_id: UUID,
    commits: Sequence[CommitMessage],
    documents: Sequence[RepositoryDocument],
    gone: Sequence[str],
) -> TakenHistory:
    """Store the commits that are new, and what documents say now; `gone` are paths of documents that are not there any more."""
    await observations.hold_projects(conn, principal.team_id, [project_id])
    commits = list({commit.hash: commit for commit in commits}.values())
    documents = list({document.path: document for document in documents}.values())
    stored = {document.path: document for document in await repository.documents(conn, principal.team_id, project_id)}
    changed = 0
    for document in documents:
        if (there := stored.get(document.path)) is not None and there.blob != document.blob:
            await correct(conn, principal, str(there.id), _correct_document(document))
            changed += 1
    for path in dict.fromkeys(gone):
        if path in stored and (row := await observations.by_id(conn, principal.team_id, stored[path].id)) is not None:
            await delete_found(conn, principal, row)
    rows = [*map(_commit_row, sorted(commits, key=lambda commit: commit.authored_at))]
    rows += [_document_row(document) for document in documents if document.path not in stored]
    known = set(await repository.known_keys(conn, principal.team_id, project_id, [row.generation_key or "" for row in rows]))
    new = [row for row in rows if row.generation_key not in known]
    taken = sum(row.caller_type == COMMIT for row in new)
    if new:
        numbers = await observations.take_numbers(conn, principal.team_id, len(new))
        numbered = [msgspec.structs.replace(row, number=number) for row, number in zip(new, numbers, strict=True)]
        await observations.insert(conn, principal.team_id, project_id, numbered)
    if new or changed:
        counts = {"commits": taken, "documents": len(new) - taken + changed}
        await audit.record(conn, principal, "history.taken", "project", project_id, project_id=project_id, counts=counts)
        await announce.notify_stream(conn)
    return TakenHistory(taken=taken, known=len(commits) - taken, documents=len(new) - taken + changed, skipped=[])


async def remove_history(conn: Conn, principal: Principal, project_id: UUID) -> int:
    """Delete what was taken over of the repository, but for what somebody merged something into; returns how many rows."""
    await observations.hold_projects(conn, principal.team_id, [project_id])
    removed = await observations.delete_history(conn, principal.team_id, project_id)
    await audit.record(conn, principal, "history.removed", "project", project_id, project_id=project_id, count=len(removed))
    await record_deleted(conn, principal, removed)
    return len(removed)


def _read_time(epoch: int) -> datetime | None:
    """The moment; None for one before 1970 or in the future."""
    try:
        at = datetime.fromtimestamp(epoch / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None
    return at if _YEAR_1970 <= at <= datetime.now(UTC) + _SKEW else None


def _commit_row(commit: CommitMessage) -> NewObservation:
    trailers, body = split_trailers(commit.body)
    trailers = [(name, _ADDRESS.sub("", value)) for name, value in trailers]
    title = tidy_line(commit.subject) or commit.hash[:_HASH_CHARS]
    narrative = tidy_text(body)
    tickets = find_tickets(f"{commit.subject}\n{commit.body}")
    people = [commit.author, *(value for name, value in trailers if name.lower() in _PEOPLE)]
    people = [person for person in dict.fromkeys(people) if person][:_PEOPLE_MOST]
    content = compose(title, None, narrative, None)
    return NewObservation(
        id=new_id(),
        kind="observation",
        type="change",
        origin="git",
        caller_type=COMMIT,
        title=title,
        narrative=narrative,
        content=content,
        concepts=tidy_list([*people, *tickets, commit.hash[:_HASH_CHARS]]),
        files_modified=tidy_list(commit.files),
        importance=_IMPORTANCE,
        read_tokens=estimate_tokens(content),
        generation_key=f"{KEY}:{commit.hash}",
        created_at=commit.authored_at,
        metadata={
            KEY: commit.hash,
            **({"author": commit.author} if commit.author else {}),
            "fileCount": commit.file_count,
            **({"trailers": [f"{name}: {value}" for name, value in trailers if value]} if trailers else {}),
            "entities": [*(f"person: {person}" for person in people), *(f"concept: {ticket}" for ticket in tickets)],
        },
    )


def _document_row(document: RepositoryDocument) -> NewObservation:
    title = _title(document)
    content = compose(title, None, document.text, None)
    return NewObservation(
        id=new_id(),
        kind="observation",
        type="change",
        origin="git",
        caller_type=DOCUMENT,
        title=title,
        narrative=document.text,
        content=content,
        files_modified=[document.path],
        importance=_IMPORTANCE,
        read_tokens=estimate_tokens(content),
        generation_key=f"{KEY}:{DOCUMENT}:{document.path}",
        metadata={KEY: f"{DOCUMENT}:{document.path}", "blob": document.blob},
    )


def _correct_document(document: RepositoryDocument) -> Correction:
    title = _title(document)
    return Correction(
        title=title,
        narrative=document.text,
        content=compose(title, None, document.text, None),
        metadata={KEY: f"{DOCUMENT}:{document.path}", "blob": document.blob},
    )


def _title(document: RepositoryDocument) -> str:
    heading = _HEADING.search(document.text)
    return tidy_line(f"{document.path}: {heading[1]}" if heading else document.path) or document.path


def split_trailers(body: str) -> tuple[list[tuple[str, str]], str]:
    """The trailers of a commit's body (`Reviewed-by: Ann`), which are its last paragraph, and the body without them."""
    before, gap, last = body.rstrip().rpartition("\n\n")
    lines = last.splitlines()
    matches = [match for line in lines if (match := _TRAILER.match(line))]
    if not lines or len(matches) != len(lines):
        return [], body
    return [(match["name"], match["value"].strip()) for match in matches], before if gap else ""


def find_tickets(text: str) -> list[str]:
    """Tickets that a message names, `PAY-12`, `#34` and `acme/orders#34`, the first ten."""
    return _first(match[0] for match in _TICKET.finditer(text) if not _NO_TICKETS.fullmatch(match[0]))


def _first(tickets: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(tickets))[:_TICKETS_MOST]
