"""Settings of earlier versions. Each is a constant beside its use by now, or has another name."""

from __future__ import annotations

from typing import Final

REMOVED: Final = {
    "answer_max_tokens": "Set CMSERVER_MODEL_CONTEXT_TOKENS: an answer may have an eighth of it.",
    "prompt_event_tokens": "Set CMSERVER_MODEL_CONTEXT_TOKENS: it also says how many tokens of events a model is shown.",
    "allowed_origins": "List the origins in CMSERVER_ALLOWED_HOSTS.",
    "claude_program": "Set CLAUDE_CODE_PATH.",
    "context_on_prompt": "Set CMSERVER_CONTEXT_ON: `prompt` is the default.",
    "context_on_file": "Set CMSERVER_CONTEXT_ON to `file` or `both`.",
    "voyage_api_key": "Set CMSERVER_EMBEDDER_KEY, or CMSERVER_EMBEDDER_KEY_FILE.",
    "language": "Set the language of a team: `cmserver teams policy TEAM --language German`.",
    "retention_observations_days": "Set it for a team: `cmserver teams retention TEAM --observations-days DAYS`.",
    "retention_events_days": "Set it for a team: `cmserver teams retention TEAM --events-days DAYS`.",
    "retention_audit_days": "Set it for a team: `cmserver teams retention TEAM --audit-days DAYS`.",
    "retention_audit_min_days": "No team can keep its audit log for less than 365 days.",
    "key_requests_per_minute": "A new key has 600 requests a minute: `cmserver keys create --requests-per-minute` gives it others.",
    "drain_seconds": "It follows from CMSERVER_LEASE_SECONDS: two fifths of it, 8 at most.",
    "job_hard_limit_seconds": "It follows from CMSERVER_PROVIDER_TIMEOUT_SECONDS: two and a half times as long.",
    "steward_lease_seconds": "It follows from CMSERVER_LEASE_SECONDS: three times as long.",
    "steward_daily_tokens": "The steward may spend 3,200 tokens a day on a project, besides the budgets of its team.",
    "search_meaning_weight": "Meaning counts half of a score, unless a search says `meaningWeight`.",
    "embedder_dimensions": "Vectors have the length that the embedder's model gives them.",
    "session_idle_hours": "A session ends after four hours without events.",
    "checkpoint_events": "An open session is summarized after 50 events.",
    "context_tokens": "A session's index has 2,000 tokens at most.",
    "context_observations": "A session's index has 50 observations at most.",
    "context_summaries": "A session's index has 10 summaries at most.",
    "batch_max_events": "A call of a model takes 20 events at most.",
    "queue_warning_seconds": "A due job that has waited for five minutes is warned of.",
    "queue_warning_jobs": "A team with more than 2,000 queued jobs is warned of.",
    "undo_days": "What expired or was merged can be brought back for seven days.",
    "backup_keep": "Of the backups by itself the newest seven are kept.",
    "body_max_bytes": "A body has 8 MiB at most.",
    "body_timeout_seconds": "A request's head, and then its body, have 30 seconds.",
    "max_connections": "A process takes 1,000 connections.",
    "field_max_chars": "A payload's field keeps 16,000 characters.",
    "streams_per_key": "A key has 50 open streams at most.",
    "stalled_client_seconds": "A client that reads nothing for 30 seconds is cut off.",
}
"""Name -> what stands in its place, in one sentence."""
