"""Follows what commits do to the files of a clone.

A clone's changes are those of the commits in its history, as far as it has told of them. A commit that it has no longer (another
branch, a rebase, a reset) takes its changes along. A file counts as gone only where git says the same of both ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from cmserver.base.sql import Conn
from cmserver.git.clones import repository
from cmserver.git.clones.model import (
    COMMITS_MOST,
    EVENTS_MOST,
    PATHS_MOST,
    CommitChanges,
    CommitPlaces,
    CommittedChange,
    CommittedChanges,
)


async def follow_clone(
    conn: Conn,
    team_id: UUID,
    project_id: UUID,
    clone_id: UUID,
    way: tuple[str, str],
    commits: Sequence[CommitChanges] | None,
    diff: Mapping[str, str],
    places: CommitPlaces,
) -> tuple[bool, str]:
    """Note what these commits did, the oldest first, on this way from one head to another, and where those are that are not merged.

    Returns whether the way is known, and the head that is known of the clone from now on.

    `diff` is what differs between the two. With None for the commits, or with too many, nothing is known of the files from now on.
    A way to the head that was told last was told before. One that begins elsewhere changes nothing: the next begins at that head.
    """
    there = await repository.lock(conn, team_id, project_id, clone_id)
    before, head = way
    changes: CommittedChanges = there.changes if there is not None else {}
    is_known = there is not None and there.head == head
    if not is_known:
        if there is not None and there.head != before:
            return False, there.head
        is_known = commits is not None and len(commits) <= COMMITS_MOST
        changes = apply_commits(changes, commits, diff) if commits is not None and is_known else {}
    await repository.keep(conn, team_id, project_id, clone_id, head, changes, places)
    await repository.drop_old(conn, team_id, project_id)
    return is_known, head


def apply_commits(
    before: CommittedChanges, commits: Sequence[CommitChanges], diff: Mapping[str, str]
) -> dict[str, list[CommittedChange]]:
    """The changes with those of new commits, and without those of commits that are gone. Each commit counts once.

    Of commits that make the same of a file the last one counts: a pick, or a squash beside what it was made of.
    """
    gone = {commit.commit for commit in commits if commit.is_gone}
    changes = {path: [change for change in done if change.commit not in gone] for path, done in before.items()}
    made: dict[str, dict[tuple[str, str], CommittedChange]] = {}
    for commit in commits:
        for kind, path, to, content in () if commit.is_gone else commit.files:
            done = {path: CommittedChange(kind, commit.commit, commit.author, commit.at, to)}
            if to:
                done[to] = CommittedChange("A", commit.commit, commit.author, commit.at)
            for name, change in done.items():
                of_file = made.setdefault(name, {})
                key = (change.kind, content if change.kind in {"A", "M"} else change.commit)
                of_file.pop(key, None)
                of_file[key] = change
    new = {path: list(of_file.values()) for path, of_file in made.items()}
    for path, added in new.items():
        done = changes.pop(path, [])  # the files that were changed last stand last
        known = {change.commit for change in done}
        is_still_gone = is_gone(done) and path not in diff  # a merged branch may have gone on with a file that is gone here
        more = [] if is_still_gone else [change for change in added if change.commit not in known]
        changes[path] = [*done, *more][-EVENTS_MOST:]
    kept = {path: done for path, done in changes.items() if done and _agrees(path, done, before, new.get(path, ()), diff)}
    return dict(list(kept.items())[-PATHS_MOST:])


def is_gone(done: Sequence[CommittedChange]) -> bool:
    """Whether a file with these changes is not there any more."""
    return bool(done) and done[-1].kind in {"D", "R"}


def _agrees(
    path: str,
    done: Sequence[CommittedChange],
    before: CommittedChanges,
    new: Sequence[CommittedChange],
    diff: Mapping[str, str],
) -> bool:
    """Whether the two ends say the same of the file as its last change: a merge may have decided otherwise."""
    if path in diff:
        return is_gone(done) == (diff[path] == "D")
    if is_gone(done):  # it was gone before, or is a stop on the way of a file that moved on
        return is_gone(before.get(path, ())) or (bool(new) and new[0].kind == "A" and new[-1].kind == "R")
    return not new  # what commits changed and is the same at both ends was not changed
