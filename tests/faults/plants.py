"""Faults that are planted into a copy of the program, for the storms to find."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.faults.base import PROGRAM


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Text of a file that is replaced wherever it stands."""

    file: str
    old: str
    new: str


_OUTBOX = "cmserver/generation/repository.py"
PLANTS = {
    "fence": [
        # Whoever has finished a batch writes its effects, whether or not the batch is still his.
        Change(file=_OUTBOX, old=" AND claim = %(claim)s AND status = 'processing'", new=" AND status = 'processing'"),
        Change(
            file=_OUTBOX, old=" AND claim = ANY(%(claims)s::bigint[]) AND status = 'processing'", new=" AND status = 'processing'"
        ),
        Change(
            file=_OUTBOX,
            old=" AND j.claim = ANY(%(claims)s::bigint[]) AND j.status = 'processing'",
            new=" AND j.status = 'processing'",
        ),
        Change(file=_OUTBOX, old="ON l.lane = n.lane AND l.claim = n.claim", new="ON l.lane = n.lane"),
        Change(file=_OUTBOX, old="WHERE l.lane = h.lane AND l.claim = h.claim", new="WHERE l.lane = h.lane"),
    ],
    "reaper": [
        # Nobody looks for the work of the dead.
        Change(file="cmserver/worker.py", old="group.create_task(_reap(settings, db, notifier, stop))", new="pass"),
    ],
    "group-commit": [
        # The callers are answered before the commit.
        Change(
            file="cmserver/ingest/group.py",
            old="        team.statements += 1\n",
            new=(
                "        team.statements += 1\n"
                "        from datetime import UTC, datetime\n"
                "        for waiting in group:\n"
                "            waiting.succeed(StoredAt(id=waiting.event.id, received_at=datetime.now(UTC)))\n"
            ),
        ),
    ],
    "spool": [
        # What is sent from the spool is deleted before the server's answer is looked at.
        Change(
            file="cmserver/client/hook/drain.sh",
            old="    results=$(send_batch)$nl\n",
            new="    results=$(send_batch)$nl\n    remove_payloads $batch\n",
        ),
    ],
    "heartbeat": [
        # A heartbeat that comes too late renews the lease.
        Change(
            file="cmserver/generation/leases/repository.py",
            old=" AND last_heartbeat > now() - make_interval(secs => %(lease_seconds)s) RETURNING id",
            new=" RETURNING id",
        ),
    ],
    "shadow": [
        # What a replay finds new is remembered at once.
        Change(
            file="cmserver/replays/run_replay.py",
            old="                await repository.insert_lines(conn, self._replay.team_id, self._replay.id, found.lines)\n",
            new=(
                "                await repository.insert_lines(conn, self._replay.team_id, self._replay.id, found.lines)\n"
                "                from cmserver.access.model import Principal\n"
                "                from cmserver.replays.take_over import _add\n"
                "                team_id, id_ = self._replay.team_id, self._replay.id\n"
                "                made = await repository.whole_lines(conn, team_id, id_, after=0, limit=500)\n"
                "                made = [line for line in made if line.difference == 'new' and line.undo is None]\n"
                "                await _add(conn, Principal.of_server(team_id), made)\n"
            ),
        ),
    ],
    "undo": [
        # What a take-over has stored stays when it is undone.
        Change(
            file="cmserver/replays/take_over.py",
            old="    await delete_found(conn, principal, row)\n    return True\n",
            new="    return True\n",
        ),
    ],
    "pins": [
        # The steward merges whatever is pinned.
        Change(file="cmserver/pins/guard.py", old="            _require_none(refused)\n", new=""),
    ],
}


def plant(name: str, folder: Path) -> Path:
    """A copy of the program with that fault in it."""
    return copy_program(PROGRAM, folder, PLANTS[name])


def copy_program(program: Path, folder: Path, changes: Sequence[Change]) -> Path:
    """A copy of that program with these changes; returns the folder."""
    for part in ("cmserver", "sql"):
        shutil.copytree(program / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for change in changes:
        file = folder / change.file
        text = file.read_text()
        assert change.old in text, f"{change.file} no longer has the text that is to be changed: {change.old}"
        file.write_text(text.replace(change.old, change.new))
    return folder
