"""Databases of claude-mem as its versions 3, 4 and 13 make them, with rows in each table that an import reads."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

V3 = """
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT UNIQUE NOT NULL, project TEXT NOT NULL, created_at TEXT NOT NULL,
    created_at_epoch INTEGER NOT NULL, source TEXT NOT NULL DEFAULT 'compress', archive_path TEXT, archive_bytes INTEGER,
    archive_checksum TEXT, archived_at TEXT, metadata_json TEXT);
CREATE TABLE memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, text TEXT NOT NULL, document_id TEXT UNIQUE, keywords TEXT,
    created_at TEXT NOT NULL, created_at_epoch INTEGER NOT NULL, project TEXT NOT NULL, archive_basename TEXT,
    origin TEXT NOT NULL DEFAULT 'transcript', title TEXT, subtitle TEXT, facts TEXT, concepts TEXT, files_touched TEXT);
CREATE TABLE overviews (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, content TEXT NOT NULL, created_at TEXT NOT NULL,
    created_at_epoch INTEGER NOT NULL, project TEXT NOT NULL, origin TEXT NOT NULL DEFAULT 'claude');
"""
V4 = """
CREATE TABLE sdk_sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, claude_session_id TEXT UNIQUE NOT NULL, sdk_session_id TEXT UNIQUE, project TEXT NOT NULL,
    user_prompt TEXT, started_at TEXT NOT NULL, started_at_epoch INTEGER NOT NULL, completed_at TEXT, completed_at_epoch INTEGER,
    status TEXT CHECK (status IN ('active', 'completed', 'failed')) NOT NULL DEFAULT 'active');
CREATE TABLE observations (
    id INTEGER PRIMARY KEY AUTOINCREMENT, sdk_session_id TEXT NOT NULL, project TEXT NOT NULL, text TEXT NOT NULL,
    type TEXT NOT NULL CHECK (type IN ('decision', 'bugfix', 'feature', 'refactor', 'discovery')), created_at TEXT NOT NULL,
    created_at_epoch INTEGER NOT NULL);
CREATE TABLE session_summaries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, sdk_session_id TEXT UNIQUE NOT NULL, project TEXT NOT NULL, request TEXT,
    investigated TEXT, learned TEXT, completed TEXT, next_steps TEXT, files_read TEXT, files_edited TEXT, notes TEXT,
    created_at TEXT NOT NULL,
    created_at_epoch INTEGER NOT NULL);
"""
V13 = """
CREATE TABLE schema_versions (id INTEGER PRIMARY KEY, version INTEGER UNIQUE NOT NULL, applied_at TEXT NOT NULL);
CREATE TABLE sdk_sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, content_session_id TEXT UNIQUE NOT NULL, memory_session_id TEXT UNIQUE,
    project TEXT NOT NULL, platform_source TEXT NOT NULL DEFAULT 'claude', user_prompt TEXT, started_at TEXT NOT NULL,
    started_at_epoch INTEGER NOT NULL, completed_at TEXT, completed_at_epoch INTEGER, status TEXT NOT NULL DEFAULT 'active',
    worker_port INTEGER, prompt_counter INTEGER DEFAULT 0, custom_title TEXT);
CREATE TABLE observations (
    id INTEGER PRIMARY KEY AUTOINCREMENT, memory_session_id TEXT NOT NULL, project TEXT NOT NULL, text TEXT, type TEXT NOT NULL,
    title TEXT, subtitle TEXT, facts TEXT, narrative TEXT, concepts TEXT, files_read TEXT, files_modified TEXT,
    prompt_number INTEGER, discovery_tokens INTEGER DEFAULT 0, content_hash TEXT, agent_type TEXT, agent_id TEXT,
    merged_into_project TEXT, generated_by_model TEXT, metadata TEXT, created_at TEXT NOT NULL, created_at_epoch INTEGER NOT NULL,
    FOREIGN KEY (memory_session_id) REFERENCES sdk_sessions (memory_session_id), UNIQUE (memory_session_id, content_hash));
CREATE TABLE session_summaries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, memory_session_id TEXT NOT NULL, project TEXT NOT NULL, request TEXT, investigated TEXT,
    learned TEXT, completed TEXT, next_steps TEXT, files_read TEXT, files_edited TEXT, notes TEXT, prompt_number INTEGER,
    discovery_tokens INTEGER DEFAULT 0, merged_into_project TEXT, created_at TEXT NOT NULL, created_at_epoch INTEGER NOT NULL);
CREATE TABLE user_prompts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, content_session_id TEXT NOT NULL, prompt_number INTEGER NOT NULL,
    prompt_text TEXT NOT NULL,
    created_at TEXT NOT NULL, created_at_epoch INTEGER NOT NULL);
CREATE TABLE directives (
    id INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL DEFAULT 'global', project TEXT, content TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active', source TEXT NOT NULL DEFAULT 'manual', created_at TEXT NOT NULL,
    created_at_epoch INTEGER NOT NULL, updated_at_epoch INTEGER NOT NULL);
"""
SERVER = """
CREATE TABLE projects (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, slug TEXT UNIQUE, root_path TEXT UNIQUE, metadata TEXT NOT NULL DEFAULT '{}',
    created_at_epoch INTEGER NOT NULL, updated_at_epoch INTEGER NOT NULL);
CREATE TABLE server_sessions (
    id TEXT PRIMARY KEY, project_id TEXT NOT NULL, content_session_id TEXT, memory_session_id TEXT,
    platform_source TEXT NOT NULL DEFAULT 'claude', title TEXT, status TEXT NOT NULL DEFAULT 'active',
    metadata TEXT NOT NULL DEFAULT '{}', started_at_epoch INTEGER NOT NULL, completed_at_epoch INTEGER,
    updated_at_epoch INTEGER NOT NULL);
CREATE TABLE memory_items (
    id TEXT PRIMARY KEY, project_id TEXT NOT NULL, server_session_id TEXT, legacy_observation_id INTEGER, kind TEXT NOT NULL,
    type TEXT NOT NULL, title TEXT, subtitle TEXT, text TEXT, narrative TEXT, facts TEXT NOT NULL DEFAULT '[]',
    concepts TEXT NOT NULL DEFAULT '[]', files_read TEXT NOT NULL DEFAULT '[]', files_modified TEXT NOT NULL DEFAULT '[]',
    metadata TEXT NOT NULL DEFAULT '{}', created_at_epoch INTEGER NOT NULL, updated_at_epoch INTEGER NOT NULL);
"""
TOOL_USES = """
ALTER TABLE sdk_sessions ADD COLUMN observed_model TEXT;
ALTER TABLE sdk_sessions ADD COLUMN observed_billing TEXT;
CREATE TABLE tool_uses (
    id INTEGER PRIMARY KEY AUTOINCREMENT, tool_use_id TEXT NOT NULL, content_session_id TEXT NOT NULL, memory_session_id TEXT,
    project TEXT NOT NULL, platform_source TEXT NOT NULL DEFAULT 'claude', tool_name TEXT NOT NULL, tool_input TEXT,
    tool_response TEXT, cwd TEXT, prompt_number INTEGER, agent_type TEXT, agent_id TEXT, observation_id INTEGER,
    created_at TEXT NOT NULL, created_at_epoch INTEGER NOT NULL, UNIQUE (content_session_id, tool_use_id));
"""
AT_MS = 1_735_689_600_000
"""2025-01-01T00:00:00Z."""
_AT = {"created_at": "2025-01-01T00:00:00.000Z", "created_at_epoch": AT_MS}
_STARTED = {"started_at": "2025-01-01T00:00:00.000Z", "started_at_epoch": AT_MS}


def make_v3(file: Path) -> Path:
    with closing(sqlite3.connect(file)) as database:
        database.executescript(V3)
        _insert(database, "sessions", {"session_id": "old-session", "project": "shop", **_AT})
        memory = {
            "session_id": "old-session",
            "project": "shop",
            "text": "The cache is kept for an hour.",
            "title": "Cache for an hour",
        }
        lists = {"facts": json.dumps(["one hour"]), "concepts": "caching, gotcha", "files_touched": json.dumps(["src/cache.py"])}
        # Of 3.0, in seconds.
        _insert(database, "memories", {**memory, **lists, **_AT, "created_at_epoch": AT_MS // 1000})
        _insert(database, "overviews", {"session_id": "old-session", "project": "shop", "content": "The cache was bounded.", **_AT})
        database.commit()
    return file


def make_v4(file: Path) -> Path:
    with closing(sqlite3.connect(file)) as database:
        database.executescript(V4)
        session = {
            "claude_session_id": "agent-4",
            "sdk_session_id": "sdk-4",
            "project": "shop",
            "user_prompt": "Bound the cache.",
        }
        _insert(database, "sdk_sessions", {**session, **_STARTED})
        _insert(database, "observations", {
            "sdk_session_id": "sdk-4", "project": "shop", "text": "The cache now holds 100 orders.", "type": "feature", **_AT
        })  # fmt: skip
        _insert(database, "session_summaries", {
            "sdk_session_id": "sdk-4", "project": "shop", "request": "Bound the cache", "completed": "It is bounded.",
            "files_edited": json.dumps(["src/cache.py"]), **_AT,
        })  # fmt: skip
        database.commit()
    return file


def make_v13(file: Path, *, observations: int = 3, more_sessions: int = 0, secret: str = "") -> Path:
    """With so many observations of a session, a summary, two prompts, a directive, and one row without any text.

    `more_sessions` share the observations, every second one in another project.
    """
    with closing(sqlite3.connect(file)) as database:
        database.executescript(V13)
        _insert(database, "sdk_sessions", {
            "content_session_id": "agent-13", "memory_session_id": "mem-13", "project": "shop", "custom_title": "The cache",
            **_STARTED, "completed_at": "2025-01-01T01:00:00.000Z", "completed_at_epoch": AT_MS + 3_600_000,
        })  # fmt: skip
        for number, text in enumerate(["Bound the cache.", f"Use this: {secret or 'nothing'}"], 1):
            _insert(database, "user_prompts", {
                "content_session_id": "agent-13", "prompt_number": number, "prompt_text": text, **_AT
            })  # fmt: skip
        for session in range(1, more_sessions + 1):
            _insert(database, "sdk_sessions", {
                "content_session_id": f"agent-13-{session}", "memory_session_id": f"mem-13-{session}", "project": _project(session),
                **_STARTED,
            })  # fmt: skip
        for number in range(observations):
            session = number % (more_sessions + 1)
            _insert(database, "observations", {
                "memory_session_id": f"mem-13-{session}" if session else "mem-13", "project": _project(session),
                "type": "bugfix" if number else "poem",
                "title": f"Worker {number} retries", "subtitle": "with a pause", "facts": json.dumps(["3 tries", secret or "2 s"]),
                "narrative": f"Worker {number} waits between its tries.", "concepts": json.dumps(["gotcha"]),
                "files_read": json.dumps(["src/worker.py"]), "files_modified": json.dumps([f"src/worker_{number}.py"]),
                "prompt_number": 1, "discovery_tokens": 900, "content_hash": f"{number:016x}",
                "generated_by_model": "claude-haiku-4-5", **_AT, "created_at_epoch": AT_MS + number * 1000,
            })  # fmt: skip
        _insert(database, "observations", {"memory_session_id": "mem-13", "project": "shop", "type": "change", **_AT})
        _insert(database, "session_summaries", {
            "memory_session_id": "mem-13", "project": "shop", "request": "Retries", "learned": "They need a pause.", **_AT
        })  # fmt: skip
        _insert(database, "directives", {"content": "Never push on Fridays.", **_AT, "updated_at_epoch": AT_MS})
        database.commit()
    return file


def add_tool_uses(file: Path) -> Path:
    """What 13.25 has besides: the model of each session, and what went to tools and came back; of one, no id is known."""
    with closing(sqlite3.connect(file)) as database:
        database.executescript(TOOL_USES)
        database.execute(
            "UPDATE sdk_sessions SET observed_model = 'opus', observed_billing = 'api', user_prompt = '<private>x1</private> a'"
        )
        for call_id, observation in (("toolu_1", 2), ("toolu_2", None), ("", None)):
            _insert(database, "tool_uses", {
                "tool_use_id": call_id, "content_session_id": "agent-13", "memory_session_id": "mem-13", "project": "shop",
                "tool_name": "Bash", "tool_input": json.dumps({"command": f"pytest {call_id}"}), "tool_response": "cut in the mid",
                "cwd": "/w", "agent_id": "a1", "observation_id": observation, **_AT,
            })  # fmt: skip
        database.commit()
    return file


def add_server(file: Path) -> Path:
    """What claude-mem's own server has beside them: an item of its own, one of an observation, a summary and a prompt."""
    with closing(sqlite3.connect(file)) as database:
        database.executescript(SERVER)
        at = {"created_at_epoch": AT_MS, "updated_at_epoch": AT_MS}
        _insert(database, "projects", {"id": "p", "name": "shop", **at})
        session = {
            "id": "s",
            "project_id": "p",
            "content_session_id": "agent-s",
            "started_at_epoch": AT_MS,
            "updated_at_epoch": AT_MS,
        }
        _insert(database, "server_sessions", {**session, "title": "Items"})
        for number, kind in enumerate(["manual", "observation", "summary", "prompt"]):
            item = {"id": f"m{number}", "project_id": "p", "server_session_id": "s", "kind": kind, "type": "discovery"}
            legacy = 1 if kind == "observation" else None
            _insert(database, "memory_items", {**item, "legacy_observation_id": legacy, "text": f"An item, {kind}.", **at})
        database.commit()
    return file


def _insert(database: sqlite3.Connection, table: str, row: Mapping[str, object]) -> None:
    marks = ", ".join("?" for _ in row)
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def _project(session: int) -> str:
    return "depot" if session % 2 else "shop"
