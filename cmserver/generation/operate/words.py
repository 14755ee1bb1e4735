"""Why a job waits, why one failed and what helps, and what the codes of the steward mean: in words for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import cast

import msgspec

from cmserver.generation.operate.model import LaneWait, WaitingJob
from cmserver.models.calls.budget import BUDGET
from cmserver.models.providers.failures import find_help

_CODES: dict[str, str] = {
    "keep": "left to a person",
    "merge": "merge",
    "nothing": "nothing is to be done",
    "mark": "mark as stale",
    "derive": "derive",
    "tune": "move a threshold",
    "same_text": "the texts are the same",
    "related": "they are related, and not the same",
    "contradicts": "they contradict each other",
    "differs": "they differ",
    "number": "in a number",
    "version": "in a version",
    "path": "in a path",
    "identifier": "in an identifier",
    "name": "in a name",
    "negation": "in a negation",
    "opposite": "in an opposite",
    "word": "in a word",
    "order": "in the order of their words",
    "change": "in what was changed",
    "below_threshold": "less alike than the threshold of the team",
    "suggestion_missing": "the suggestion is gone",
    "not_open": "somebody has decided it already",
    "pair_gone": "one of the two is gone",
    "other_project": "it has gone to another project",
    "changed_meanwhile": "a text was changed meanwhile",
    "model_sure": "the model is sure that they say the same",
    "model_unsure": "the model is not sure enough",
    "model_says_different": "the model says that they are not the same",
    "model_sees_conflict": "the model sees a contradiction",
    "no_model": "no model is set, which would decide it",
    "model_paused": "the provider of the model is paused",
    "model_failed": "the model gave no answer",
    "model_unreadable": "the answer of the model could not be read",
    "breaker_open": "no model is asked for two minutes, as calls failed one after another",
    "budget_spent": "the budget is spent",
    "daily_tokens_spent": "the steward has spent its tokens of today",
    "nothing_recurs": "nothing comes up in several sessions",
    "same_error_and_remedy": "the same error was mended in the same way in several sessions",
    "model_sees_common": "the model sees what several sessions say",
    "model_sees_nothing_common": "the model sees nothing that they share",
    "model_cites_unknown": "the model names a source that there is not",
    "model_cites_too_few": "the model names too few sessions",
    "model_says_more": "the model says more than its sources",
    "unsure": "it is not sure enough",
    "nothing_new": "it says too little that is new",
    "derived_already": "it was derived before",
    "nothing_changed": "no call changed what was said",
    "deleted": "a file is gone",
    "moved": "a file has another path",
    "removed": "what it names was removed",
    "changed": "what it names has another value",
    "no_reason": "what people decided gives no reason",
    "sample_too_small": "people have decided too little yet",
    "few_accepted": "people accepted few of the suggestions",
    "most_accepted": "people accepted most of the suggestions",
    "few_kept": "people kept little of what was derived",
    "most_kept": "people kept most of what was derived",
    "rolled_back": "somebody took it back",
    "dry_run": "a dry run, which writes nothing",
    "off": "the steward is off",
    "paused": "the steward is paused",
    "executor_not_allowed": "the team does not let the steward do it here",
    "project_archived": "the project is archived",
    "team_archived": "the team is archived",
    "bad_payload": "what it was told could not be read",
    "unknown_type": "this version does not know such work",
    "executor_error": "an error of the program",
    "timeout": "it took too long",
}
"""What the steward decides, by its code; the API and the database have the code."""

_FAILURES: dict[str, tuple[str, str]] = {
    "key_revoked": ("its key may no longer ask for it", "Retry it: it then runs with your key."),
    "project_closed": ("its project is closed", "Open the project or the team again, then retry it."),
    "project_joined": ("its project was joined to another one", "Nothing is to be done."),
    "source_gone": ("what it is about was deleted", "Nothing is to be done."),
    "payload_unusable": ("its event could not be read", "Report it with what the server's log says."),
    "worker lost": ("its worker was lost", "Retry it; when it fails so again, the server's log says what ended the worker."),
    "claim lost": ("its worker was lost", "Retry it; when it fails so again, the server's log says what ended the worker."),
    "worker stopped": ("its worker was stopped", "Nothing is to be done."),
    "bad_payload": (_CODES["bad_payload"], "Nothing is to be done: another version made it, and what is due is planned again."),
    "unknown_type": (_CODES["unknown_type"], "Upgrade the worker that is older, then retry it."),
    "executor_error": (_CODES["executor_error"], "Retry it; when it fails so again, report it with what the server's log says."),
    "timeout": (_CODES["timeout"], "Retry it when the server has less to do."),
    BUDGET: ("a budget is spent", "Raise the budget, or wait for the next period."),
    "paused": ("the provider is paused", "Wait for the end of the pause."),
}
"""Of a job: what happened, and what helps. What providers do has a table of its own."""
_CODE = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def in_words(code: object) -> str:
    """What a code of the steward means; several are joined. Text that is no code stays, without underscores in its codes."""
    if isinstance(code, list):
        return ", ".join(map(in_words, cast("list[object]", code)))
    text = str(code)
    return _CODES.get(text) or _CODE.sub(lambda match: _CODES.get(match[0]) or match[0].replace("_", " "), text)


def explain_outcome(source_type: str, reason: str | None) -> str:
    """Why a completed job ended as it did; the steward's reasons are codes: `keep: differs, number`."""
    if source_type != "steward" or not reason:
        return reason or ""
    decision, _, reasons = reason.partition(": ")
    return ": ".join(filter(None, [in_words(decision), in_words(reasons.split(", ") if reasons else "")]))


def explain_error(error: Mapping[str, object] | None) -> str:
    """Why a job failed or was sent back, with the message of the provider or the program."""
    reason, message = ((error or {}).get(name) for name in ("reason", "message"))
    return ": ".join(str(text) for text in (reason and _describe(str(reason)), message) if text)


def explain_details(details: Mapping[str, object], without: str = "") -> str:
    """What an entry of a job's history says: `reason: the provider refused to answer; message: No.`"""
    told = {name: value for name, value in details.items() if value is not None and name != without}
    return "; ".join(f"{name.replace('_', ' ')}: {_explain_detail(name, value)}" for name, value in told.items())


def _explain_detail(name: str, value: object) -> str:
    if name == "reason":
        return _describe(str(value))
    if name in {"reasons", "decision"}:
        return in_words(value)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def explain_help(error: Mapping[str, object] | None) -> str:
    """What one can do about a job that failed."""
    reason = str((error or {}).get("reason"))
    entry = find_help(reason, str((error or {}).get("message", "")))
    if entry is None:
        return _FAILURES.get(reason, ("", "Retry it."))[1]
    remedy = entry.remedy.format(key="the key of the provider")
    return f"{remedy[0].upper()}{remedy[1:]}{'' if 'retry' in remedy else '; then retry it'}."


def _describe(reason: str) -> str:
    entry = find_help(reason)
    return f"the provider {entry.predicate}" if entry else _FAILURES.get(reason, (in_words(reason), ""))[0]


def explain_hold(held_for: str | None, held_reason: str | None) -> str:
    """Why a lane is held: for a budget, for the pause of a provider, or after a failure."""
    reason = held_reason or ""
    if held_for == BUDGET:
        return reason.removesuffix(".")
    if held_for:
        entry = find_help(reason.removeprefix("paused: "))
        return f"the provider {held_for} is paused{f', as it {entry.predicate}' if entry else ''}"
    return _describe(reason.removeprefix("back-off: ")) if reason else "the last try failed"


def explain_lane(lane: LaneWait) -> str:
    """What a lane waits for, and until when; empty while a worker has it, or when it has nothing to do."""
    match lane.state:
        case "held":
            return f"{explain_hold(lane.held_for, lane.held_reason)}; tried again at {_clock(lane.held_until)}"
        case "waiting" if lane.is_of_steward:
            return f"due at {_clock(lane.due_at)}"
        case "waiting":
            return f"waits for the rest of its turn; due at {_clock(lane.due_at)}"
        case "due":
            return "due; waits for a free worker"
        case "working" | "idle":
            return ""


def explain_waiting(job: WaitingJob) -> str:
    """Why a queued job waits, and until when."""
    whose = "project" if job.is_of_steward else "session"
    behind = f"behind {job.before:,} other{'' if job.before == 1 else 's'} of its {whose}" if job.before else ""
    if job.state == "working":
        return f"{behind or 'next'}; a worker has its {whose} now"
    if job.waits_for_end and job.state in {"waiting", "idle"}:
        why = "waits for the end of its session, as its project wants it"
    else:
        why = explain_lane(job) or "is made due within a minute"
    return f"{why}; {behind}" if behind else why


def _clock(moment: datetime | None) -> str:
    if moment is None:
        return "once"
    moment = moment.astimezone(UTC)
    return f"{moment:%H:%M} UTC" if moment.date() == datetime.now(UTC).date() else f"{moment:%Y-%m-%d %H:%M} UTC"
