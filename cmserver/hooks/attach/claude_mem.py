"""The stock claude-mem plugin: its settings are pointed at our port, and put back when it is let go."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec

from cmserver.hooks.attach import jsontext
from cmserver.hooks.attach.jsontext import Json

SECRETS = ("CLAUDE_MEM_SERVER_API_KEY",)
_BELOW = "env"
"""Settings stand in the outermost object, or all together below this name."""


class Edit(msgspec.Struct, frozen=True):
    """What changes in the file, and what stood where it changes."""

    text: str
    before: dict[str, str | None]


def folder(environ: Mapping[str, str], home: Path) -> Path:
    """Where claude-mem keeps its things."""
    named = environ.get("CLAUDE_MEM_DATA_DIR")
    return Path(named) if named else home / ".claude-mem"


def worker(host: str, port: int) -> dict[str, str]:
    """What makes its hooks take us for its worker."""
    return {"CLAUDE_MEM_WORKER_HOST": host, "CLAUDE_MEM_WORKER_PORT": str(port)}


def server(url: str, key: str, project_id: str) -> dict[str, str]:
    """What makes its hooks send to a server with a key."""
    return {
        "CLAUDE_MEM_RUNTIME": "server",
        "CLAUDE_MEM_SERVER_URL": url,
        "CLAUDE_MEM_SERVER_API_KEY": key,
        "CLAUDE_MEM_SERVER_PROJECT_ID": project_id,
    }


def put(path: Path, text: str | None, values: Mapping[str, str]) -> Edit:
    """The settings with these values."""
    found = jsontext.parse(path, text)
    before: dict[str, str | None] = {}
    below = found.get(_BELOW)
    table = cast("Json", below) if isinstance(below, dict) else found
    for name, value in values.items():
        old = table.get(name)
        if old is not None and not isinstance(old, (str, int)):
            raise jsontext.BadFile(f"In {path} the value of {name} is neither text nor number. The file is left as it is.")
        before[name] = None if old is None else str(old)
        if str(old) == value:
            continue
        text = jsontext.put(path, text, *((name, value) if table is found else (_BELOW, {**table, **values})))
    return Edit(text or "", before)


def take(path: Path, text: str | None, written: Mapping[str, str], before: Mapping[str, str | None]) -> str | None:
    """The settings with what stood there before. What somebody else has changed since stays as it is."""
    if text is None:
        return None
    found = jsontext.parse(path, text)
    below = found.get(_BELOW)
    table = dict(cast("Json", below)) if isinstance(below, dict) else found
    ours = [name for name, value in written.items() if str(table.get(name)) == value]
    if table is found:
        for name in ours:
            old = before.get(name)
            text = jsontext.take(path, text, name) if old is None else jsontext.put(path, text, name, old)
        return text
    for name in ours:
        old = before.get(name)
        if old is None:
            del table[name]
        else:
            table[name] = old
    return jsontext.put(path, text, _BELOW, table) if ours else text


def stale_pid(path: Path) -> Path | None:
    """The file of a worker that is gone, because of which the hooks think that nobody answers."""
    file = path / "worker.pid"
    try:
        pid = msgspec.json.decode(file.read_bytes(), type=dict[str, object]).get("pid")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return file
    return None if isinstance(pid, int) and pid > 0 and _runs(pid) else file


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError) as error:
        return isinstance(error, PermissionError)
    return True


def check_mode(values: Mapping[str, str]) -> bool:
    """Whether the settings hold a secret, and so are for their owner only."""
    return any(name in values for name in SECRETS)
