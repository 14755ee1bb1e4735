"""Merges observations into one, and undoes changes. One transaction each, alone in the project."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from psycopg import errors

from cmserver.access import announce, audit
from cmserver.access.model import Principal
from cmserver.base.errors import Conflict, Forbidden, Invalid, Issue
from cmserver.base.metrics import metrics
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.consolidation import repository
from cmserver.consolidation.merge import MergeableText, MergeTooLong, merge_texts
from cmserver.consolidation.model import (
    SUPERSEDES,
    ExpectedState,
    Merge,
    ModelRefusal,
    NewRelation,
    SkippedSource,
    SkipReason,
    Undo,
)
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.history.acts import find_changed, tell_act
from cmserver.observations.history.model import Change, MergeStrategy, restore
from cmserver.observations.model import CURRENT_ON, LISTS, Observation, estimate_tokens
from cmserver.observations.read import find_any_observation, find_observation, parse_name
from cmserver.observations.write import refuse_rule

_NOT_FOR_TEAM = "This key is bound to one project and may not change what the whole team shares. Use a key without a project."
_NOT_YOURS = "This observation is shared by another project. A key that is bound to a project may only read it."


class MergeWording(msgspec.Struct, frozen=True, kw_only=True):
    """A model's words for the merge of these texts, by the ids of their observations; or why there are none."""

    texts: dict[UUID, MergeableText]
    words: MergeableText | None = None
    refusal: ModelRefusal | None = None

    def is_of(self, rows: Sequence[Observation]) -> bool:
        """Whether these are the observations, and say what they said."""
        texts = {row.id: text_of(row) for row in rows}
        if texts.keys() != self.texts.keys():
            return False
        return all(msgspec.structs.replace(texts[id_], updated_at=text.updated_at) == text for id_, text in self.texts.items())


async def merge_observations(
    conn: Conn,
    principal: Principal,
    target_name: str,
    source_names: Sequence[int | str],
    strategy: MergeStrategy,
    wording: MergeWording | None = None,
) -> Merge:
    """Merge the sources into the target; those that cannot be are named in the answer, and change nothing.

    `wording` is a model's, for this merge; it is not taken if the texts are others by now.
    NotFound without the target, Gone when it is superseded or expired, Invalid for a summary or for texts too long together.
    """
    target = await _find_target(conn, principal, target_name)
    await history.lock_project(conn, target.project_id)
    rows = await _find_sources(conn, principal, source_names)
    merged_before = [row for row in rows if row.superseded_by is not None]  # and so it stays: only who has the project undoes it
    live_ids = {row.id for row in rows} - {row.id for row in merged_before}
    locked = await history.lock(conn, principal.team_id, {target.id, *live_ids})
    target = await find_observation(conn, principal, str(target.id))
    sources, skipped = await _select_sources(conn, target, source_names, [*merged_before, *locked])
    if principal.project_id is not None and any(source.scope != target.scope for source in sources):
        raise Forbidden(_NOT_FOR_TEAM)
    if not sources:
        return Merge(observation=target, merged=[], skipped=skipped, strategy=strategy)
    for row in (target, *sources):
        await refuse_rule(conn, principal, row)
    text = merge_fields(target, sources, strategy)
    refusal = wording.refusal if wording is not None else None
    if wording is not None and wording.words is not None:
        if wording.is_of([target, *sources]):
            text = wording.words
        else:
            refusal = "texts_changed"
    worded_by = "rules" if wording is None or text is not wording.words else "model"
    change = Change(
        action="merged", performed_by=principal.actor_id, source_ids=[source.id for source in sources], strategy=strategy
    )
    merged = await combine(conn, target, sources, change, text)
    await _tell_of(conn, principal, merged, sources, strategy=strategy, worded_by=worded_by)
    return Merge(observation=merged, merged=sources, skipped=skipped, strategy=strategy, worded_by=worded_by, model_refused=refusal)


async def find_mergeable(
    conn: Conn, principal: Principal, target_name: str, source_names: Sequence[int | str]
) -> tuple[Observation, list[Observation]]:
    """The target and those sources that can be merged into it, without a lock. Refuses a target as `merge_observations` does."""
    target = await _find_target(conn, principal, target_name)
    rows = await _find_sources(conn, principal, source_names)
    sources, _ = await _select_sources(conn, target, source_names, rows)
    return target, sources


async def _find_target(conn: Conn, principal: Principal, name: str) -> Observation:
    target = await find_observation(conn, principal, name)
    if not principal.sees(target.project_id):
        raise Forbidden(_NOT_YOURS)
    if target.kind == "summary":
        raise Invalid("The summary of a session is not merged.")
    if target.origin == "git":
        raise Invalid(
            "Nothing is merged into what was taken over of a repository: it would go with that. Merge the other way round."
        )
    return target


async def _find_sources(conn: Conn, principal: Principal, names: Sequence[int | str]) -> list[Observation]:
    """Those of that names, live or not, which the principal may change."""
    keys = {key for name in names if (key := parse_name(str(name))) is not None}
    return [row for row in await observations.any_by_names(conn, principal.team_id, keys) if principal.sees(row.project_id)]


async def _select_sources(
    conn: Conn, target: Observation, names: Sequence[int | str], rows: Sequence[Observation]
) -> tuple[list[Observation], list[SkippedSource]]:
    """Those of the rows that can be merged into the target, in the order of the names, and what cannot."""
    rows_by_key = {key: row for row in rows for key in (row.id, row.number)}
    skipped: list[SkippedSource] = []
    sources: dict[UUID, Observation] = {}
    for name in dict.fromkeys(names):
        key = parse_name(str(name))
        source = rows_by_key.get(key) if key is not None else None
        reason = await _find_skip_reason(conn, target, source)
        if source is None or reason is not None:
            skipped.append(SkippedSource(name=name, reason=reason or "missing"))
        else:
            sources[source.id] = source
    return list(sources.values()), skipped


async def _find_skip_reason(conn: Conn, target: Observation, source: Observation | None) -> SkipReason | None:
    if source is None:
        return "missing"
    if source.id == target.id:
        return "itself"
    if source.project_id != target.project_id:
        return "other_project"
    if source.superseded_by is not None:
        return "superseded"
    if await observations.gone(conn, target.team_id, ids=[source.id]):
        return "expired"
    return "summary" if source.kind == "summary" else None


async def combine(
    conn: Conn, target: Observation, sources: Sequence[Observation], change: Change, text: MergeableText | None = None
) -> Observation:
    """Write the merged observation (`text` if known) and supersede the sources: all locked, live, and of one project."""
    text = text or merge_fields(target, sources, change.strategy or "smart_merge")
    # What is said again by itself holds again, as a repeat does; a person who merges says by the target what holds.
    is_open_again = change.measured_by is not None and any(row.state is None for row in sources)
    states = [] if is_open_again else [row.state for row in (target, *sources) if row.state is not None]
    merged = msgspec.structs.replace(
        target,
        title=text.title,
        subtitle=text.subtitle,
        narrative=text.narrative,
        content=text.content,
        **{name: list(getattr(text, name)) or None for name in LISTS},
        importance=max(row.importance for row in (target, *sources)),
        merged_from=list(dict.fromkeys([*target.merged_from, *(source.id for source in sources)])),
        read_tokens=estimate_tokens(text.content),
        scope="team" if any(row.scope == "team" for row in (target, *sources)) else target.scope,
        state=states[0] if states else None,
        closed_at=next((row.closed_at for row in (target, *sources) if states and row.state == states[0]), None),
        closed_by=target.closed_by if states and target.state == states[0] else None,
        stale=target.stale if all(row.stale for row in (target, *sources)) else None,
        **_longest_life([target, *sources]),
    )
    stored = await observations.correct(conn, target.team_id, merged)
    await history.add(conn, target, stored, change)
    source_ids = [source.id for source in sources]
    await history.supersede(conn, target.team_id, source_ids, stored.id)
    for source in sources:
        relation = NewRelation(
            from_id=stored.id,
            from_project_id=stored.project_id,
            to_id=source.id,
            to_project_id=source.project_id,
            relationship=SUPERSEDES,
            strength=1.0,
        )
        await repository.relate(conn, target.team_id, relation)
    await repository.accept_among(conn, target.team_id, [stored.id, *source_ids], change.performed_by)
    metrics().merges.labels("steward" if change.performed_by == "steward" else "others").inc(len(sources))
    return stored


async def merge_alike(
    conn: Conn, principal: Principal, target: Observation, source: Observation, change: Change
) -> Observation | None:
    """Merge what nobody asked for into what is like it; None, and nothing changed, where the texts are too long together."""
    try:
        async with conn.transaction():
            merged = await combine(conn, target, [source], change)
    except (MergeTooLong, errors.ProgramLimitExceeded):  # over a field's limit, or too many words to index
        return None
    await _tell_of(conn, principal, merged, [source], strategy=change.strategy)
    return merged


async def _tell_of(
    conn: Conn, principal: Principal, merged: Observation, sources: Sequence[Observation], **how: str | None
) -> None:
    numbers = [source.number for source in sources]
    project_id = merged.project_id
    await audit.record(
        conn, principal, "observation.merged", "observation", merged.id, project_id=project_id, sources=numbers, **how
    )
    await announce.notify_stream(conn)


async def undo(conn: Conn, principal: Principal, name: str, expected: ExpectedState | None = None) -> Undo:
    """Undo the observation's last change; the sources of a merge are shown again, an expired one for good.

    Conflict when nothing is left to undo, when it was itself merged into another, when a source of the merge is gone, or when it is
    not in the expected state.
    """
    found = await find_any_observation(conn, principal, name)
    if not principal.sees(found.project_id):
        raise Forbidden(_NOT_YOURS)
    await history.lock_project(conn, found.project_id)
    observation = await observations.lock(conn, principal.team_id, found.id)
    if observation is None:
        raise Conflict("It was changed at this moment. Try again.")
    last = await history.last(conn, principal.team_id, found.id)
    if observation.superseded_by is not None:
        raise Conflict("It was merged into another observation: undo that merge.")
    is_expired = any(await observations.gone(conn, principal.team_id, ids=[found.id]))
    if expected is not None and expected != ExpectedState(observation.version, is_expired):
        raise Conflict(
            f"#{observation.number} was changed again since you saw it. Nothing was undone. Look at it first: its page undoes the "
            "last change."
        )
    if is_expired:
        kept = await observations.correct(conn, principal.team_id, msgspec.structs.replace(observation, **_PERMANENT))
        await history.add(conn, observation, kept, Change(action="promoted", performed_by=principal.actor_id))
        undone, restored, act = kept, [kept.number], "brought_back"
    else:
        if last is None or last.before is None:
            raise Conflict("No change is left to undo.")
        if principal.project_id is not None and last.before.scope != observation.scope:
            raise Forbidden(_NOT_FOR_TEAM)
        before = _with_life(restore(observation, last.before), observation)
        try:
            undone = await observations.correct(conn, principal.team_id, before)
        except errors.UniqueViolation as error:
            matter = before.metadata.get(CURRENT_ON)
            raise Conflict(f"Another one is the current word on {matter!r} by now. Take the matter from that one first.") from error
        act = tell_act(last.action, find_changed(last.before, observation), last.measured_by, last.created_at)
        await history.mark_undone(conn, principal.team_id, last.id)
        restored = await _revive_sources(conn, principal, undone, last.source_ids)
    await audit.record(
        conn, principal, "observation.undone", "observation", found.id, project_id=found.project_id, restored=restored
    )
    await announce.notify_stream(conn)
    return Undo(observation=undone, restored=restored, act=act)


async def _revive_sources(conn: Conn, principal: Principal, target: Observation, source_ids: Sequence[UUID]) -> list[int]:
    """Show the sources of a merge again, and never suggest it again; returns their numbers."""
    if not source_ids:
        return []
    numbers = await history.revive(conn, principal.team_id, source_ids, target.id)
    if len(numbers) < len(source_ids):
        raise Conflict("A source of the merge is deleted: it cannot be undone.")
    await repository.unrelate_superseded(conn, principal.team_id, target.id, source_ids)
    await repository.dismiss(conn, target, source_ids, similarity=1.0, resolved_by=principal.actor_id)
    return sorted(numbers)


_PERMANENT: dict[str, None] = {"ttl_seconds": None, "expires_at": None}


def _with_life(before: Observation, now: Observation) -> Observation:
    """What is restored, with a life that has not ended: extended meanwhile it stays so, and one that is over is for good."""
    if before.expires_at is None:
        return before
    if before.expires_at <= datetime.now(UTC):
        return msgspec.structs.replace(before, **_PERMANENT)
    if now.expires_at is not None and now.expires_at > before.expires_at:
        return msgspec.structs.replace(before, ttl_seconds=now.ttl_seconds, expires_at=now.expires_at)
    return before


def _longest_life(rows: Sequence[Observation]) -> dict[str, int | datetime | None]:
    """The lifetime of a merged observation: that of the source that lives longest."""
    longest = max(rows, key=lambda row: (row.expires_at is None, row.expires_at.timestamp() if row.expires_at else 0.0))
    return {"ttl_seconds": longest.ttl_seconds, "expires_at": longest.expires_at}


def merge_fields(target: Observation, sources: Sequence[Observation], strategy: MergeStrategy) -> MergeableText:
    """The texts merged by rules; MergeTooLong names `$.sources`."""
    try:
        return merge_texts(text_of(target), [text_of(source) for source in sources], strategy)
    except MergeTooLong as error:
        raise MergeTooLong(str(error), [Issue("$.sources", str(error))]) from error


def text_of(observation: Observation) -> MergeableText:
    """What of an observation a merge changes."""
    lists = {name: tuple(getattr(observation, name) or ()) for name in LISTS}
    return reshape(observation, MergeableText, **lists)
