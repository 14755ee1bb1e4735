"""Words what is an observation by itself: a page that was read, a report, a reply of the user's, a deed elsewhere, a note."""

from __future__ import annotations

import re

from cmserver.base.text import shorten
from cmserver.providers.model import DraftObservation
from cmserver.reading.model import AgentReport, Finding, Note, RemoteDeed, UserReply, WebAnswer
from cmserver.reading.offers import title_answer
from cmserver.reading.text import MAX_LAID_DOWN, MAX_TITLE, count_noun, first_line, first_sentence

_MAX_NARRATIVE = 1_500
_WEIGHED = re.compile(r"\b(?:instead of|rather than|trade-?offs?|over|versus|vs)\b", re.IGNORECASE)
_WARNED = re.compile(r"\b(?:gotcha|caveat|careful|beware|never|must not|root cause|turns out|workaround)\b", re.IGNORECASE)


def draft_finding(finding: Finding) -> DraftObservation:
    match finding:
        case WebAnswer():
            return _draft_web_answer(finding)
        case AgentReport():
            return _draft_report(finding)
        case UserReply():
            return _draft_reply(finding)
        case RemoteDeed():
            return _draft_deed(finding)
        case Note():
            return _draft_note(finding)


def _draft_web_answer(found: WebAnswer) -> DraftObservation:
    source = re.sub(r"^https?://(?:www\.)?|/$", "", found.query) if found.is_url else f'"{shorten(found.query, 60)}"'
    return DraftObservation(
        type="discovery",
        title=shorten(f"{shorten(source, 60)}: {first_sentence(found.text, MAX_TITLE)}", MAX_TITLE),
        subtitle=f"Asked: {shorten(found.question, 150)}" if found.question and found.question != found.query else None,
        narrative=shorten(found.text, 800),
        facts=[f"Source: {shorten(found.query, 200)}"],
        concepts=["how-it-works"],
    )


def _draft_report(report: AgentReport) -> DraftObservation:
    if report.edit_count:
        fact = f"Done by a sub-agent ({report.agent}): {count_noun(report.edit_count, 'edit')}, {report.lines}"
    else:
        effort = f", {count_noun(report.use_count, 'tool use')}" if report.use_count else ""
        fact = f"Found by a sub-agent ({report.agent}{effort})"
    title = f"{report.task}: {first_sentence(report.report, MAX_TITLE)}" if report.task else report.report
    return DraftObservation(
        type="change" if report.edit_count else "discovery",
        title=shorten(title, MAX_TITLE),
        narrative=shorten(report.report, _MAX_NARRATIVE),
        facts=[fact],
        concepts=["what-changed" if report.edit_count else "how-it-works"],
    )


def _draft_reply(reply: UserReply) -> DraftObservation:
    """A decision that quotes both sides."""
    if reply.plan:
        title = f"Accepted plan: {reply.reply or first_line(reply.plan)}"
        quotes = [f'The user, to the plan: "{reply.reply}"' if reply.reply else "", shorten(reply.plan, _MAX_NARRATIVE // 2)]
    else:
        title = "; ".join(title_answer(answer, question) for question, answer in reply.answers)
        quotes = [f'Asked: "{question}" The user: "{answer}"' for question, answer in reply.answers]
    return DraftObservation(
        type="decision", title=shorten(title, MAX_LAID_DOWN), narrative=" ".join(filter(None, quotes)), concepts=["trade-off"]
    )


def _draft_deed(deed: RemoteDeed) -> DraftObservation:
    title = f"{deed.server} {deed.tool.replace('_', ' ')}: {first_sentence(deed.subject, 80)}"
    facts = [f"Answer: {deed.answer}"] if deed.answer else []
    return DraftObservation(type="change", title=shorten(title, MAX_TITLE), facts=facts, concepts=["what-changed"])


def _draft_note(note: Note) -> DraftObservation:
    concept = "why-it-exists" if note.is_decision else "gotcha" if _WARNED.search(note.text) else "how-it-works"
    return DraftObservation(
        type="decision" if note.is_decision else "discovery",
        title=first_sentence(note.text, MAX_TITLE).rstrip("."),
        narrative=shorten(" ".join(note.text.split()), _MAX_NARRATIVE),
        concepts=[concept, "trade-off"] if _WEIGHED.search(note.text) else [concept],
    )
