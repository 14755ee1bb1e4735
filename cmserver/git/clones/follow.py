"""Follows what commits do to the files of a clone.

A clone's changes are those of the commits in its history, as far as it has told of them. A commit that it has no longer (another
branch, a rebase, a reset) takes its changes along. A file counts as gone only where git says the same of both ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.git.clones import repository
from cmserver.git.clones.model import COMMITS_MOST, EVENTS_MOST, PATHS_MOST, CommitChanges, CommittedChange


async def follow_clone(
    conn: Conn,
    team_id: UUID,
    project_id: UUID,
    clone_id: UUID,
    head: str,
    commits: Sequence[CommitChanges] | None,
    diff: Mapping[str, str],
    *,
    since: int,
) -> bool:
    """Note what these commits did, the oldest first, on the way from the last head to this one; returns whether it is known.

    `diff` is what differs between the two, `since` when the last one was told. With None for the commits, or with too many,
    nothing is known of the files from now on.
    """
    there = await repository.lock(conn, team_id, project_id, clone_id)
    is_known = commits is not None and len(commits) <= COMMITS_MOST
    changes = there.changes if there is not None and is_known else {}
    if commits is not None and is_known:
        changes = apply_commits(changes, commits, diff, since=since)
    await repository.keep(conn, team_id, project_id, clone_id, head, changes)
    await repository.drop_old(conn, team_id, project_id)
    return is_known


def apply_commits(
    before: Mapping[str, Sequence[CommittedChange]], commits: Sequence[CommitChanges], diff: Mapping[str, str], *, since: int
) -> dict[str, list[CommittedChange]]:
    """The changes with those of new commits, and without those of commits that are gone. `since` is when the last head was told."""
    gone = {commit.commit for commit in commits if commit.is_gone}
    changes = {path: [change for change in done if change.commit not in gone] for path, done in before.items()}
    for commit in commits:
        if commit.is_gone:
            continue
        for kind, path, to in commit.files:
            done = changes.pop(path, [])  # the files that were changed last stand last
            if all(change.commit != commit.commit for change in done):
                done = [*done, CommittedChange(kind, commit.commit, commit.author, commit.at, since, to)][-EVENTS_MOST:]
            changes[path] = done
            if to:
                there = changes.pop(to, [])
                changes[to] = [*there, CommittedChange("A", commit.commit, commit.author, commit.at, since)][-EVENTS_MOST:]
    kept = {path: done for path, done in changes.items() if done and _agrees(done, diff.get(path), before.get(path, ()))}
    return dict(list(kept.items())[-PATHS_MOST:])


def is_gone(done: Sequence[CommittedChange]) -> bool:
    """Whether a file with these changes is not there any more."""
    return bool(done) and done[-1].kind in {"D", "R"}


def _agrees(done: Sequence[CommittedChange], status: str | None, before: Sequence[CommittedChange]) -> bool:
    """Whether the two ends say the same of the file as its last change: a merge may have decided otherwise."""
    if status is not None:
        return is_gone(done) == (status == "D")
    # The same at both ends: gone if it was before, or came and went between them.
    return not is_gone(done) or is_gone(before) or any(change.kind == "A" for change in done[:-1])
