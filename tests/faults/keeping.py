"""The steward in a storm: pairs that it merges while people change the same ones, and what must hold of all that afterwards."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from uuid import UUID

import msgspec
import psycopg

from cmserver.base.ids import new_id
from tests.faults.actor import Actor
from tests.faults.system import System
from tests.process.program import number, rows, wait_for
from tests.timeouts import Deadline

PAIRS = 24
_DRAIN_SECONDS = 30.0
_ASK_EVERY_SECONDS = 0.25
_NOT_COMPARED = ("version", "updated_at", "created_at", "content_search", "last_accessed_at")

_OPEN = "SELECT count(*) FROM steward_jobs WHERE status IN ('queued', 'running')"
_OPEN_JOBS = """
    SELECT id, job_type, status, attempt_count, run_after, locked_by, last_error, now() FROM steward_jobs
     WHERE status IN ('queued', 'running') LIMIT 3
"""
_LET_TIME_PASS = "UPDATE generation_lanes SET held_until = NULL, due_at = now() WHERE held_until > now()"
_PLANTED = "SELECT * FROM observations WHERE id = ANY(%(ids)s)"
_SUGGEST = """
    INSERT INTO consolidation_suggestions (id, team_id, project_id, left_id, right_id, similarity, measured_by, reason)
    SELECT %(id)s, team_id, project_id, least(%(left)s::uuid, %(right)s::uuid), greatest(%(left)s::uuid, %(right)s::uuid), 0.97,
           'vector', 'same'
      FROM observations WHERE id = %(left)s
    ON CONFLICT DO NOTHING
"""
# A row that is merged is a source of one merge that stands, and one that is shown of none.
_MERGED_TWICE = """
    SELECT o.number FROM observations o
     WHERE o.id = ANY(%(ids)s)
       AND (SELECT count(*) FROM observation_versions v
             WHERE v.action = 'merged' AND v.undone_at IS NULL AND o.id = ANY(v.source_ids)) <> (o.superseded_by IS NOT NULL)::int
"""
_SOURCES_TWICE = """
    SELECT o.number FROM observations o
     WHERE o.id = ANY(%(ids)s)
       AND cardinality(o.merged_from) <> (SELECT count(DISTINCT source) FROM unnest(o.merged_from) source)
"""
# What the steward wrote is what its runs say: neither more nor less, and no version twice.
_UNTOLD = """
    WITH told AS (
        SELECT (e ->> 'observationId')::uuid AS observation_id, (e ->> 'version')::int AS version
          FROM steward_runs r, jsonb_array_elements(r.output_snapshot -> 'effects') e WHERE e ->> 'kind' = 'merged'
    ), written AS (
        SELECT observation_id, version FROM observation_versions WHERE action = 'merged' AND performed_by = 'steward'
    )
    (TABLE told EXCEPT ALL TABLE written) UNION ALL (TABLE written EXCEPT ALL TABLE told)
"""
_SUCCEEDED_TWICE = """
    SELECT job_id FROM steward_runs WHERE job_id IS NOT NULL AND status <> 'failed' GROUP BY job_id HAVING count(*) > 1
"""
_COMPLETED_TWICE = """
    SELECT job_id FROM steward_events WHERE event_type = 'job_completed' GROUP BY job_id HAVING count(*) > 1
"""
_RUNS = """
    SELECT r.id, (e ->> 'observationId')::uuid AS observation_id
      FROM steward_runs r, jsonb_array_elements(r.output_snapshot -> 'effects') e
     WHERE e ->> 'kind' = 'merged' AND (e ->> 'observationId')::uuid = ANY(%(ids)s) AND r.undone_at IS NULL
     ORDER BY r.completed_at DESC
"""
_PURGE = """
    WITH gone AS (DELETE FROM observations WHERE superseded_by = %(id)s RETURNING id)
    UPDATE observation_versions SET sources_purged_at = now() WHERE observation_id = %(id)s AND EXISTS (SELECT FROM gone)
"""


class Pair(msgspec.Struct, kw_only=True):
    """Two notes that say the same. `is_touched`: a person began to change one, whatever came of it."""

    ids: tuple[UUID, UUID]
    numbers: tuple[int, int]
    is_touched: bool = False


def plant_pair(actor: Actor, project: str, left: str, right: str) -> Pair:
    """Two notes in the project, which are suggested to be one."""
    made = [plant_note(actor, project, title) for title in (left, right)]
    left_id, right_id = (UUID(str(row["id"])) for row in made)
    suggest = f"WITH new AS ({_SUGGEST} RETURNING id) SELECT id FROM new"
    rows(actor.system.database, suggest, id=new_id(), left=left_id, right=right_id)
    return Pair(ids=(left_id, right_id), numbers=(int(str(made[0]["number"])), int(str(made[1]["number"]))))


def plant_note(actor: Actor, project: str, title: str) -> dict[str, object]:
    """A note in the project, as it is stored."""
    body = {"projectId": project, "title": title, "onDuplicate": "keep"}
    answer = actor.insist("a note to be stored", "POST", "/v1/observations", body, 201)
    assert answer.status_code == 201, answer.text
    return answer.json()["observation"]


class Figures(msgspec.Struct, kw_only=True):
    """What the steward and people did in a storm."""

    runs: int = 0
    merged: int = 0
    undone: int = 0
    refused: int = 0
    acts: int = 0

    def __str__(self) -> str:
        return (
            f"steward's {self.runs} runs and {self.merged} merges, {self.undone} undone, {self.refused} refused, "
            f"{self.acts} acts of people"
        )


class Keeping(Actor):
    """Plants the pairs, and lets the steward and people work on them until `end`."""

    def __init__(self, system: System, seed: int) -> None:
        super().__init__(system, seed)
        self.figures = Figures()
        self.edits: dict[int, list[tuple[str, bool]]] = {}
        """By number: the words that a person put there, and whether that was acknowledged, in their order."""
        project = self.make_project(f"keeping-{seed}")["canonicalId"]
        self.pairs = [plant_pair(self, project, *self._name_pair(place)) for place in range(PAIRS)]
        self.before = self.read_rows()
        self._set_mode(mode="write", paused=False)
        self.begin(self._ask, self._meddle)

    @property
    def ids(self) -> list[UUID]:
        return [id_ for pair in self.pairs for id_ in pair.ids]

    def read_rows(self) -> dict[UUID, dict[str, object]]:
        """The planted observations that are there, but for their versions and times."""
        found = rows(self.system.database, _PLANTED, ids=self.ids)
        return {UUID(str(row["id"])): {name: value for name, value in row.items() if name not in _NOT_COMPARED} for row in found}

    def end(self) -> None:
        """Let them finish what they have begun; the steward is left in the mode `write`."""
        super().end()
        wait_for("the mode to be set", lambda: self._set_mode(mode="write", paused=False))

    def _name_pair(self, place: int) -> tuple[str, str]:
        text = f"The depot {self.seed} of yard {place} counts its crates before the gate opens"
        return text, text if place % 2 else f"{text}, while the clerk of the yard looks on"

    # -- the steward

    def _ask(self) -> float:
        self.request("POST", "/v1/steward/run", {}, 202, 409)
        return _ASK_EVERY_SECONDS

    def _set_mode(self, **mode: object) -> bool:
        answer = self.request("PUT", "/v1/steward/mode", mode, 200)
        return answer is not None and answer.status_code == 200

    # -- people

    def _meddle(self) -> float:
        """Change one of the pairs with odd places; the others are the steward's alone."""
        pair = self.random.choice([pair for place, pair in enumerate(self.pairs) if place % 4 > 1])
        act = self.random.choice([self._edit] * 4 + [self._merge, self._merge, self._dismiss, self._undo, self._switch])
        if act != self._switch:
            pair.is_touched = True
        act(pair)
        self.figures.acts += 1
        return self.random.uniform(0.05, 0.3)

    def _edit(self, pair: Pair) -> None:
        place = self.random.randrange(2)
        # Without a number, for which the steward would leave the pair to people.
        mark = "".join("abcdefghij"[int(digit)] for digit in str(self.figures.acts))
        words = f"the clerk counted again by hand and marked it {mark}mark"
        path = f"/v1/observations/{pair.ids[place]}"
        edits = self.edits.setdefault(pair.numbers[place], [])
        edits.append((words, False))
        answer = self.request("PATCH", path, {"facts": [words]}, 200, 404, 409, 410)
        if answer is not None and answer.status_code == 200:
            edits[-1] = words, True
        elif answer is not None:
            edits.pop()

    def _merge(self, pair: Pair) -> None:
        self.request("POST", f"/v1/observations/{pair.ids[0]}/merge", {"sources": [pair.numbers[1]]}, 200, 404, 409, 410)

    def _dismiss(self, pair: Pair) -> None:
        question = "SELECT id FROM consolidation_suggestions WHERE left_id = ANY(%(ids)s)"
        for row in self.system.ask(question, ids=list(pair.ids)):
            self.request("PATCH", f"/v1/suggestions/{row['id']}", {"status": "dismissed"}, 200, 404, 409, 410)

    def _undo(self, pair: Pair) -> None:
        """Which may take back what was edited last."""
        answer = self.request("POST", f"/v1/observations/{pair.ids[0]}/undo", None, 200, 404, 409, 410)
        if answer is None or answer.status_code == 200:
            self.edits.pop(pair.numbers[0], None)

    def _switch(self, _pair: Pair) -> None:
        self._set_mode(**self.random.choice([{"mode": "dry_run"}, {"paused": True}]))
        self.is_over.wait(0.3)
        self._set_mode(mode="write", paused=False)


class KeepingJudge:
    """Looks at what the steward left; `violations` are sentences, none when everything held."""

    def __init__(self, system: System, keeping: Keeping) -> None:
        self._system, self._keeping = system, keeping
        self.violations: list[str] = []

    def look(self) -> None:
        """When all jobs have ended, ask what must hold; then undo everything, and ask again."""
        if not self._wait_until_drained():
            self.violations.append(f"steward's jobs have not ended: {rows(self._system.database, _OPEN_JOBS)}")
            return
        keeping = self._keeping
        self.violations += keeping.take_surprises()
        self._look_at_rows("after the storm")
        questions = {
            "what the steward wrote differs from what its runs say": _UNTOLD,
            "jobs of the steward that succeeded twice": _SUCCEEDED_TWICE,
            "jobs of the steward that completed twice": _COMPLETED_TWICE,
        }
        for sentence, question in questions.items():
            if found := rows(self._system.database, question):
                self.violations.append(f"{sentence}: {len(found)}, such as {found[0]}")
        figures = keeping.figures
        figures.runs = number(self._system.database, "SELECT count(*) FROM steward_runs")
        self._undo_all()
        self._look_at_rows("after undoing all")
        for pair in keeping.pairs:
            if not pair.is_touched and figures.merged == 0:
                self.violations.append("the steward merged nothing")
                break

    def _wait_until_drained(self) -> bool:
        deadline = Deadline(_DRAIN_SECONDS)
        while not deadline.is_over:
            with suppress(psycopg.Error):
                if number(self._system.database, _OPEN) == 0:
                    return True
                rows(self._system.database, f"{_LET_TIME_PASS} RETURNING lane")
                rows(self._system.database, "SELECT wake_sleeping_lanes()")
            time.sleep(0.5)
        return False

    def _look_at_rows(self, when: str) -> None:
        ids = self._keeping.ids
        if len(self._keeping.read_rows()) != len(ids):
            self.violations.append(f"lost {when}: {len(ids) - len(self._keeping.read_rows())} planted observations")
        for sentence, question in {"merged twice": _MERGED_TWICE, "sources twice": _SOURCES_TWICE}.items():
            if found := rows(self._system.database, question, ids=ids):
                self.violations.append(f"{sentence} {when}: {[row['number'] for row in found]}")
        self._look_at_edits(when)

    def _look_at_edits(self, when: str) -> None:
        """The last words that a person put into a note, and was told so, are in it or in what it was merged into."""
        found = self._keeping.read_rows()
        by_number = {int(str(row["number"])): row for row in found.values()}
        for note, edits in self._keeping.edits.items():
            acknowledged = [place for place, (_, is_acknowledged) in enumerate(edits) if is_acknowledged]
            if not acknowledged or note not in by_number:
                continue
            row = by_number[note]
            while row["superseded_by"] is not None:
                # Whoever edits what it was merged into replaces its words there; then they are in the note itself.
                into = found.get(UUID(str(row["superseded_by"])))
                if into is None or int(str(into["number"])) in self._keeping.edits:
                    break
                row = into
            text = json.dumps(row, default=str)
            if not any(words in text for words, _ in edits[acknowledged[-1] :]):
                self.violations.append(f"an edit of #{note} is overwritten {when}: {edits[acknowledged[-1]]}")

    def _undo_all(self) -> None:
        """Undo each run, the newest first: those of pairs that nobody touched give back what was there before."""
        keeping = self._keeping
        wait_for("the steward to be off", lambda: keeping.request("PUT", "/v1/steward/mode", {"mode": "off"}, 200))
        pairs = {id_: pair for pair in keeping.pairs for id_ in pair.ids}
        purged = False
        gone: set[UUID] = set()
        for run in rows(self._system.database, _RUNS, ids=keeping.ids):
            pair = pairs[UUID(str(run["observation_id"]))]
            keeping.figures.merged += 1
            if not pair.is_touched and not purged:
                purged = True
                rows(self._system.database, f"{_PURGE} RETURNING id", id=run["observation_id"])
                gone = {*pair.ids}
            answer = wait_for(
                "a run to be undone",
                lambda run=run: keeping.request("POST", f"/v1/steward/runs/{run['id']}/undo", None, 200, 409),
            )
            keeping.figures.undone += answer.status_code == 200
            keeping.figures.refused += answer.status_code == 409
            if gone == {*pair.ids}:
                if "purged" not in answer.text:
                    self.violations.append(f"undone after the purge: {answer.text[:200]}")
            elif answer.status_code == 409 and not pair.is_touched:
                self.violations.append(f"undo refused although nobody touched the pair: {answer.text[:200]}")
            elif answer.status_code == 409 and "#" not in answer.text:
                self.violations.append(f"a refused undo names nothing: {answer.text[:200]}")
        keeping.pairs = [pair for pair in keeping.pairs if {*pair.ids} != gone]
        after = keeping.read_rows()
        differing = [
            pair.numbers
            for pair in keeping.pairs
            if not pair.is_touched and [after.get(id_) for id_ in pair.ids] != [keeping.before[id_] for id_ in pair.ids]
        ]
        if differing:
            self.violations.append(f"undo did not restore {differing}")
