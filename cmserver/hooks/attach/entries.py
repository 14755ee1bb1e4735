"""Our hooks among those of others: put in, found again, taken out. All three agents keep them in the same shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from typing import cast

from cmserver.hooks.attach import jsontext
from cmserver.hooks.attach.jsontext import BadFile, Json, items, table
from cmserver.hooks.attach.model import Hook

IsOurs = Callable[[str], bool]
"""Whether a handler's command is one of ours."""

_COMMAND = re.compile(r'"((?:[^"\\$`]|\\.)*)" [A-Za-z]+')


def command(program: Path, event: str) -> str:
    """What the agent's shell is given. The folder may have spaces in its name, or worse."""
    quoted = "".join(f"\\{one}" if one in '\\"$`' else one for one in str(program))
    return f'"{quoted}" {event}'


def program_of(text: str) -> Path | None:
    """The program of a command as `command` makes it."""
    match = _COMMAND.fullmatch(text)
    return Path(re.sub(r"\\(.)", r"\1", match[1])) if match else None


def group(hook: Hook, text: str, *, name: str | None = None) -> Json:
    """One hook as the agents' settings have it, with its command."""
    handler: Json = {"type": "command", "command": text, "timeout": hook.timeout}
    if name is not None:
        handler = {"name": name, **handler}
    return {"hooks": [handler]} if hook.matcher is None else {"matcher": hook.matcher, "hooks": [handler]}


def put(hooks: object, groups: Iterable[tuple[str, Json]], is_ours: IsOurs, *, file: Path) -> Json:
    """The hooks with exactly these of ours: each stays where it stands if it is right, and else goes to the end of its event."""
    wanted = list(groups)
    kept = _checked(hooks, file)
    for event, one in wanted:
        if one not in items(kept.get(event)) or _number_of_ours(kept.get(event), is_ours) != 1:
            kept = _without(kept, is_ours, only=event)
            kept[event] = [*items(kept.get(event)), one]
    events = {event for event, _ in wanted}
    for event in [name for name in kept if name not in events]:
        kept = _without(kept, is_ours, only=event)
    return kept


def take(hooks: object, is_ours: IsOurs, *, file: Path) -> Json:
    """The hooks without ours. What is empty then is left out, too."""
    kept = _checked(hooks, file)
    for event in list(kept):
        kept = _without(kept, is_ours, only=event)
    return kept


def commands(hooks: object) -> list[str]:
    """The commands and addresses of all handlers, as far as they can be understood."""
    found: list[str] = []
    for groups in table(hooks).values():
        for one in items(groups):
            for handler in items(table(one).get("hooks")):
                found += [text for name in ("command", "url") if isinstance(text := table(handler).get(name), str)]
    return found


def _without(hooks: Json, is_ours: IsOurs, *, only: str) -> Json:
    groups: list[object] = []
    changed = False
    for one in items(hooks.get(only)):
        handlers = items(table(one).get("hooks"))
        others = [handler for handler in handlers if not _is_ours(handler, is_ours)]
        if len(others) == len(handlers):
            groups.append(one)
            continue
        changed = True
        if others:
            groups.append({**table(one), "hooks": others})
    if not changed:
        return hooks
    return {name: groups if name == only else value for name, value in hooks.items() if name != only or groups}


def _number_of_ours(groups: object, is_ours: IsOurs) -> int:
    return sum(_is_ours(handler, is_ours) for one in items(groups) for handler in items(table(one).get("hooks")))


def _is_ours(handler: object, is_ours: IsOurs) -> bool:
    text = table(handler).get("command")
    return isinstance(text, str) and is_ours(text)


def _checked(hooks: object, file: Path) -> Json:
    """A copy of what stands under `hooks`; nothing when nothing does."""
    if hooks is None:
        return {}
    if not isinstance(hooks, dict):
        raise BadFile(f'In {file} "hooks" is no object, so nothing can be added to it. The file is left as it is.')
    kept = deepcopy(cast("Json", hooks))
    for event, groups in kept.items():
        if event[:1].isupper() and not isinstance(groups, list):
            raise BadFile(f'In {file} "hooks" has "{event[:40]}", which is no list. The file is left as it is.')
    return kept


def with_ours(text: str | None, file: Path, groups: Iterable[tuple[str, Json]], is_ours: IsOurs) -> str:
    """The text of a settings file with exactly these hooks of ours; the very same text when they are there already."""
    there = jsontext.parse(file, text).get("hooks")
    hooks = put(there, groups, is_ours, file=file)
    return text if text is not None and hooks == there else jsontext.put(file, text, "hooks", hooks)


def without_ours(text: str | None, file: Path, is_ours: IsOurs) -> str | None:
    """The text of a settings file without our hooks; the very same text when there are none."""
    there = jsontext.parse(file, text).get("hooks")
    hooks = take(there, is_ours, file=file)
    if text is None or there is None or hooks == there:
        return text
    return jsontext.put(file, text, "hooks", hooks) if hooks else jsontext.take(file, text, "hooks")
