"""What is superseded or has expired is shown by no query: each that reads observations says so, or is named here."""

from __future__ import annotations

import re

from cmserver.base.sql import Query
from tests.house.house import queries
from tests.table import try_rows

READS = re.compile(r"\b(?:FROM|JOIN|UPDATE)\s+observations\b(?:\s+(?!WHERE|SET|ON|ORDER)(\w+))?")
LIVE = "superseded_at IS NULL AND ({0}expires_at IS NULL OR {0}expires_at > now())"

ALL_ROWS = {
    "cmserver.git.repository.known_keys": "what is sent again finds its row, whatever became of it",
    "cmserver.observations.past.repository.clock": "only the time of the first, whatever became of it",
    "cmserver.observations.repository.current_on": "one that has expired is named, too: the index counts it",
    "cmserver.observations.repository.delete_history": "what was taken over goes, whatever became of it",
    "cmserver.observations.repository.delete_known_history": "as the one above",
    "cmserver.observations.repository.BY_GENERATION_KEYS": "a repeated write must find the first, whatever became of it",
    "cmserver.observations.repository.by_id": "for find_observation, which says where a superseded row went",
    "cmserver.observations.repository.ANY_BY_NAMES": "who merges says of each that is not live why",
    "cmserver.observations.repository.RECORDED": "follows what was merged to the live one that it was merged into",
    "cmserver.observations.repository.by_number": "for find_observation, which says where a superseded row went",
    "cmserver.observations.repository.lock": "of a row that was found before",
    "cmserver.observations.repository.CORRECT": "of a row that is locked",
    "cmserver.observations.repository.SET_DRAWN": "of a row that is locked",
    "cmserver.replays.repository.INSERT_LINES": "of a row that is there; which lines are shown is asked when they are",
    "cmserver.replays.repository.next_sessions": "what was open once, whatever became of it",
    "cmserver.replays.repository.erased": "looks for rows that are gone, and not for those that are not shown",
    **dict.fromkeys(
        [f"cmserver.replays.repository.{name}" for name in ("page", "find", "lines", "whole_lines")],
        "beside the rule it lets a row through that the replay itself has ended, and reads the number of one that it lets through",
    ),
    "cmserver.observations.repository.holders_of_derived": "what was derived and then merged stands in what it was merged into",
    "cmserver.observations.repository.derived_from": "what was derived is erased with its sources, whatever became of it",
    "cmserver.steward.repository.AUTOMATIC_ACTS": "of the sources of a merge only the numbers, for the undo",
    "cmserver.steward.repository.FORGET": "what is erased is forgotten, whatever became of it",
    "cmserver.observations.repository.remove_rules_rows": "what a model has worded since goes, and what was merged into stays",
    "cmserver.observations.repository.erase": "what is not shown is erased, too",
    "cmserver.observations.repository.REINDEX": "words of a row that an undo may show again",
    "cmserver.observations.repository.count_for_reindex": "as the one above",
    "cmserver.observations.repository.close": "updates what the same statement has found live",
    "cmserver.observations.repository.edited_files": "a number of files, which were edited whatever became of the rows",
    "cmserver.observations.repository.failures": "their ids; which are live is asked of them below",
    "cmserver.observations.repository.SET_STATES": "of rows that were read before, and their turns",
    "cmserver.observations.repository.gone": "tells what became of those that are not live",
    "cmserver.observations.approval.repository.HOLD": "of rows that were just written: makes the state",
    "cmserver.observations.approval.repository.NEWEST": "what waits for an answer is not shown, and is listed for people",
    "cmserver.observations.approval.repository.LOCK": "as above",
    "cmserver.observations.approval.repository.ANSWER": "makes the state",
    "cmserver.observations.approval.repository._waiting_as": "what waits for an answer is not shown",
    "cmserver.observations.approval.repository.decisions_of": "of a session that was just given to the team",
    "cmserver.observations.approval.repository.release": "ends the state",
    "cmserver.observations.approval.repository.expire": "makes the state",
    "cmserver.observations.history.repository.lock": "merging and undoing look at each row's state themselves",
    "cmserver.observations.history.repository.supersede": "makes the state",
    "cmserver.observations.history.repository.revive": "ends the state",
    "cmserver.consolidation.repository.relation": "of a relation that the caller has just made, or deletes",
    "cmserver.consolidation.repository.RELATIONS_OF": "ends of SUPERSEDES are not live; relate.py looks at each",
    "cmserver.consolidation.repository.suggestion": "accepting a pair that is merged already is no error",
    "cmserver.consolidation.repository.merges": "the log of what was merged, also into what was merged again",
    "cmserver.ops.joining.repository.is_untouched": "a project has memory also while what was merged can be undone",
    "cmserver.observations.lifetime.repository.promote": "of a row that is locked, and one that has expired is wanted again",
    "cmserver.observations.accesses.repository.count": "what was read is counted, whatever became of it",
    "cmserver.steward.derivations.repository.counts": "counts what was derived, and whether people kept it",
    "cmserver.retention.repository.AGE_OBSERVATIONS": "makes the state of what has none yet",
    "cmserver.retention.repository.COUNT_AGED": "as above",
    "cmserver.retention.repository.PURGE_EXPIRED": "takes what has not been shown for a week",
    "cmserver.retention.repository.COUNT_EXPIRED": "as above",
    "cmserver.retention.repository.PURGE_SUPERSEDED": "takes what has not been shown for a week",
    "cmserver.retention.repository.COUNT_SUPERSEDED": "as above",
    "cmserver.retention.repository.DELETE_EVENTS": "what an undo may show again still needs its source",
    "cmserver.retention.repository.COUNT_EVENTS": "as above",
    "cmserver.ops.privacy.repository.told": "what was told of it counts, whatever became of it",
    "cmserver.ops.joining.repository.strays": "what is not shown moves along, too",
    "cmserver.observations.repository.merged_into": "what was merged is superseded; it is erased with what it was merged into",
    "cmserver.observations.lifetime.repository.expire": "of a row that is locked",
    "cmserver.ops.analytics.repository.stored_days": "counts what was stored, whatever became of it",
    "cmserver.ops.analytics.repository.shown_totals": "counts what was shown, whatever became of it",
    "cmserver.ops.analytics.repository.projects": "as the two above",
    "cmserver.ops.transfer.repository.OBSERVATIONS": "an export has everything",
    "cmserver.ops.transfer.repository.PRESENT_OBSERVATIONS": "an import takes nothing twice, whatever became of it",
    "cmserver.ops.transfer.repository.TAKEN_NUMBERS": "a number is never used again",
    "cmserver.ops.transfer.repository.ADD_ENTITY_RELATIONS": "evidence stays with what an undo may show again",
    "cmserver.ops.transfer.repository.LINK": "of rows that the import has just written",
    "cmserver.ops.transfer.repository.numbers_of": "of what the import, or one before it, has written",
    "cmserver.ops.transfer.repository.point_to_turns": "as the one above",
    "cmserver.recall.receipts.repository.of_moment": "a text is cut by where its rows are now, whatever became of them",
    "cmserver.observations.repository.end_expired_word": "takes the mark from one that has expired",
    "cmserver.embeddings.repository.TEXTS": "of rows of observation_embeddings; what is superseded has none",
}


def forgotten(text: str) -> list[str]:
    """The names by which the query reads observations without the live rule."""
    names = [match[1] for match in READS.finditer(text)]
    return [name or "observations" for name in names if LIVE.format(f"{name}." if name else "") not in text]


def test_every_query_on_observations_says_the_live_rule():
    wrong = {
        name: forgotten(query.text)
        for name, query in queries()
        if name.startswith("cmserver.") and name not in ALL_ROWS and forgotten(query.text)
    }

    assert wrong == {}


def test_every_exception_is_a_query_that_needs_it():
    found: dict[str, Query[object]] = dict(queries())

    assert [name for name in ALL_ROWS if name not in found or not forgotten(found[name].text)] == []


@try_rows(
    ("text", "names"),
    [
        ("SELECT id FROM observations WHERE team_id = 1", ["observations"]),
        ("SELECT id FROM observations o WHERE o.team_id = 1", ["o"]),
        (f"SELECT id FROM observations WHERE {LIVE.format('')}", []),
        (f"SELECT id FROM sources s JOIN observations o ON o.id = s.id WHERE {LIVE.format('o.')}", []),
        (f"SELECT id FROM observations o JOIN observations p ON true WHERE {LIVE.format('o.')}", ["p"]),
        ("SELECT id FROM observations_in_team", []),
    ],
)
def test_the_rule_bites(text: str, names: list[str]):
    assert forgotten(text) == names
