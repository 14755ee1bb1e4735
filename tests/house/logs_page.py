"""The reference page on logs."""

from __future__ import annotations

from cmserver.base.telemetry import EVENTS


def logs_page() -> str:
    """docs/reference/logs.md."""
    rows = "\n".join(f"| `{name}` | {sentence} |" for name, sentence in sorted(EVENTS.items()))
    return _PAGE.format(rows=rows)


_PAGE = """\
# Logs

<!-- Generated from cmserver/base/telemetry.py. -->

Logs go to standard error: for a person to read on a terminal, else one JSON object a line (`CMSERVER_LOG_FORMAT`,
`CMSERVER_LOG_LEVEL`). Each record has `ts` (ISO 8601, UTC, milliseconds), `level`, `event` and `logger`; `request_id` while
a request is answered; an exception as text in `exception`; and what belongs to the event. Records of a worker about a batch have
its `lane`, `claim` and `job_ids`, and the `request_id` of the request that caused its jobs (`request_ids` when there were several).
Values of keys that look like secrets are replaced by `***`, and long values are cut in the middle. Records of libraries (uvicorn,
psycopg, procrastinate) have the same shape; their `event` is a sentence.

| event | what has happened |
|---|---|
{rows}
"""
