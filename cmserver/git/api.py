"""A repository's history over HTTP: whoever has the repository sends it, for there is no git on the server."""

from __future__ import annotations

from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall, delete, get, post
from cmserver.base.ids import epoch_ms
from cmserver.base.structs import reshape
from cmserver.git import history, repository, wire


@post("/v1/history", "observations:write")
async def post_history(call: VerbCall, given: wire.HistoryIn) -> wire.HistoryImportOut:
    """Take over a part of a repository's history: commits, and documents as they are now. What is known already stays as it is."""
    principal = call.principal
    project = await call.dependency(Projects).named_or_own(principal, given.project_id, at="$.projectId", make=True)
    commits, skipped = await history.clean_commits(given.commits, size_bytes=call.size_bytes)
    documents = await history.clean_documents(given.documents, size_bytes=call.size_bytes)
    taken = await call.write(
        lambda conn: history.take_history(conn, principal, project.id, commits, documents, given.gone_documents)
    )
    return reshape(taken, wire.HistoryImportOut, project_id=project.id, skipped=skipped)


@get("/v1/history", "observations:read")
async def get_history(call: VerbCall, given: wire.RepositoryHistoryQuery) -> wire.RepositoryHistoryOut:
    """What a project has of its repository's history: how many commits, and which documents."""
    principal = call.principal
    project = await call.dependency(Projects).named_or_own(principal, given.project, at="$.project")
    async with call.read() as conn:
        counts = await repository.counts(conn, principal.team_id, project.id)
        documents = await repository.documents(conn, principal.team_id, project.id)
    return wire.RepositoryHistoryOut(
        project_id=project.id,
        commits=counts.commits,
        newest_at_epoch=epoch_ms(counts.newest_at) if counts.newest_at else None,
        documents=[reshape(document, wire.KnownDocumentOut) for document in documents],
    )


@delete("/v1/history", "observations:write")
async def delete_history(call: VerbCall, given: wire.RepositoryHistoryQuery) -> wire.RemovedHistoryOut:
    """Delete what was taken over of a project's repository. What sessions and people said stays."""
    principal = call.principal
    project = await call.dependency(Projects).named_or_own(principal, given.project, at="$.project")
    removed = await call.write(lambda conn: history.remove_history(conn, principal, project.id))
    return wire.RemovedHistoryOut(project_id=project.id, removed=removed)


routes = [post_history, get_history, delete_history]
