"""Edits an agent's JSON settings as text, so that all other text stays as it is, and replaces the file, with a backup."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, cast

import msgspec

from cmserver.base.atomic_file import write_file
from cmserver.base.errors import CmserverError, Conflict
from cmserver.base.tolerant_json import array

Json = dict[str, object]
IsOurs = Callable[[str], bool]
"""Whether a handler's command runs our hook client."""

_GAP = re.compile(r"[ \t\n\r]*")
_DEFAULT_INDENT = "  "
BACKUPS = 3
_BACKUP_MARK = ".cmserver-backup-"
_MULTILINE_LEVELS = 2
"""New values down to this depth are written with one line for each part."""
_HOOK_COMMAND = re.compile(r'"((?:[^"\\$`]|\\.)*)" [A-Za-z]+')


class UnusableSettings(CmserverError):
    """A settings file that cannot be edited safely, and is left as it is."""


class JsonMember(msgspec.Struct, frozen=True):
    """A member of the outermost object: its name begins at `begin`, its value stands from `value` to `end`."""

    name: str
    begin: int
    value: int
    end: int


# -- the file


def read_settings(path: Path) -> str | None:
    """The file's text; None when there is no file."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableSettings(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UnusableSettings(f"{path} is not UTF-8 text (at byte {error.start}). It is left as it is.") from None


def parse_settings(path: Path, text: str | None) -> Json:
    """The settings, empty for an empty file. Raises `UnusableSettings` with the place for what is not a plain JSON object."""
    if text is None or not text.strip():
        return {}
    try:
        settings: object = json.loads(text, object_pairs_hook=_refuse_duplicate_names, parse_constant=_refuse_constant)
    except RecursionError:
        raise UnusableSettings(f"{path} is nested too deep. It is left as it is.") from None
    except json.JSONDecodeError as error:
        comment = " JSON has no comments." if text[error.pos : error.pos + 2] in {"//", "/*"} else ""
        raise UnusableSettings(
            f"{path} is not valid JSON in line {error.lineno}, column {error.colno} ({error.msg}). It is left as it is.{comment} "
            "Correct it, then run the command again."
        ) from None
    except ValueError as error:
        raise UnusableSettings(f"{path} {error}, and cannot be kept as it is. Correct it, then run the command again.") from None
    if not isinstance(settings, dict):
        raise UnusableSettings(f"{path} has no JSON object. It is left as it is. Correct it, then run the command again.")
    return cast("Json", settings)


def set_member(path: Path, text: str | None, name: str, value: object) -> str:
    """The text with that member, changed in its place or added as the last one."""
    if text is None or not text.strip():
        text = "{}\n"
    parse_settings(path, text)
    indent = find_indent(text)
    members = find_members(text)
    for member in members:
        if member.name == name:
            old = text[member.value : member.end]
            return text[: member.value] + render_value(text, value, old, indent) + text[member.end :]
    line_end = find_line_end(text)
    added = f"{line_end}{indent}{json.dumps(name)}: {render_value(text, value, None, indent)}"
    if members:
        return f"{text[: members[-1].end]},{added}{text[members[-1].end :]}"
    open_at = text.index("{")
    return f"{text[: open_at + 1]}{added}{line_end}{text[text.index('}', open_at) :]}"


def remove_member(path: Path, text: str, name: str) -> str:
    """The text without that member."""
    parse_settings(path, text)
    members = find_members(text)
    index = next((index for index, member in enumerate(members) if member.name == name), None)
    if index is None:
        return text
    if index > 0:
        return text[: members[index - 1].end] + text[members[index].end :]
    if len(members) > 1:
        return text[: members[0].begin] + text[members[1].begin :]
    return text[: text.index("{") + 1] + text[text.rindex("}") :]


def json_object(value: object) -> Json:
    """The value if it is an object, else an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def render_diff(path: Path, before: str | None, after: str, *, secrets: Iterable[str] = ()) -> str:
    """The change, for a terminal: without the secrets and without control characters."""
    lines = difflib.unified_diff(
        (before or "").splitlines(),
        after.splitlines(),
        f"{path} (now)" if before is not None else "(no file)",
        str(path),
        lineterm="",
    )
    diff = "\n".join("".join(char if char.isprintable() or char == "\t" else "?" for char in line) for line in lines)
    for secret in secrets:
        diff = diff.replace(secret, "***") if secret else diff
    return diff


def replace_settings(path: Path, before: str | None, after: str | None, *, secret: bool = False) -> Path | None:
    """Replace `before` by `after`, and return its backup. Raises Conflict when the file is not `before` any more.

    Without `after` the file is removed, and has no backup. Of a link the target is replaced. The file keeps its mode, but a
    `secret` one is readable by its owner only.
    """
    target = path.resolve()
    if read_settings(target) != before:
        raise Conflict(f"{path} has changed in the meantime. Nothing is written; run the command again.")
    try:
        if after is None:
            path.unlink(missing_ok=True)
            return None
        backup = None if before is None else _back_up(target, secret=secret)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(target, after, mode=_mode(target, secret=secret))
    except OSError as error:
        raise CmserverError(f"{path} cannot be written: {error.strerror or error}. It is unchanged.") from error
    return backup


def list_backups(target: Path) -> list[Path]:
    """Earlier versions, oldest first."""
    name = "".join(f"[{char}]" if char in "*?[" else char for char in target.name)
    return sorted(target.parent.glob(f"{name}{_BACKUP_MARK}*"))


def _back_up(target: Path, *, secret: bool) -> Path:
    backup = target.with_name(f"{target.name}{_BACKUP_MARK}{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
    write_file(backup, target.read_bytes(), mode=_mode(target, secret=secret))
    for old in list_backups(target)[:-BACKUPS]:
        old.unlink(missing_ok=True)
    return backup


def _mode(target: Path, *, secret: bool) -> int:
    return 0o600 if secret or not target.exists() else target.stat().st_mode & 0o777


# -- hooks


def hook_command(program: Path, event: str) -> str:
    """The command for the agent's shell, quoted: the folder may have spaces or quotes in its name."""
    quoted = "".join(f"\\{char}" if char in '\\"$`' else char for char in str(program))
    return f'"{quoted}" {event}'


def parse_hook_command(command: str) -> Path | None:
    """The program of a command as `hook_command` makes it."""
    match = _HOOK_COMMAND.fullmatch(command)
    return Path(re.sub(r"\\(.)", r"\1", match[1])) if match else None


def hook_group(command: str, timeout: int, *, matcher: str | None = None, name: str | None = None) -> Json:
    """A hook in the form of the agents' settings: a group with one command."""
    handler: Json = {"type": "command", "command": command, "timeout": timeout}
    if name is not None:
        handler = {"name": name, **handler}
    return {"hooks": [handler]} if matcher is None else {"matcher": matcher, "hooks": [handler]}


def install_hooks(text: str | None, file: Path, groups: Iterable[tuple[str, Json]], is_ours: IsOurs) -> str:
    """The text with exactly these groups of ours, by event; a right one keeps its place, another goes to its event's end."""
    before = parse_settings(file, text).get("hooks")
    hooks = _check_hooks(before, file)
    wanted = list(groups)
    for event, group in wanted:
        present = array(hooks.get(event))
        if group not in present or sum(_is_ours(handler, is_ours) for handler in _handlers(present)) != 1:
            hooks = _remove_ours(hooks, is_ours, event)
            hooks[event] = [*array(hooks.get(event)), group]
    events = {event for event, _ in wanted}
    for event in [event for event in hooks if event not in events]:
        hooks = _remove_ours(hooks, is_ours, event)
    return text if text is not None and hooks == before else set_member(file, text, "hooks", hooks)


def uninstall_hooks(text: str | None, file: Path, is_ours: IsOurs) -> str | None:
    """The text without our hooks, and without what is empty then; the same text when it has none."""
    before = parse_settings(file, text).get("hooks")
    hooks = _check_hooks(before, file)
    for event in list(hooks):
        hooks = _remove_ours(hooks, is_ours, event)
    if text is None or before is None or hooks == before:
        return text
    return set_member(file, text, "hooks", hooks) if hooks else remove_member(file, text, "hooks")


def list_hook_targets(hooks: object) -> list[str]:
    """The commands and URLs of all handlers."""
    handlers = [json_object(handler) for groups in json_object(hooks).values() for handler in _handlers(array(groups))]
    return [target for handler in handlers for key in ("command", "url") if isinstance(target := handler.get(key), str)]


def _handlers(groups: list[object]) -> list[object]:
    return [handler for group in groups for handler in array(json_object(group).get("hooks"))]


def _remove_ours(hooks: Json, is_ours: IsOurs, event: str) -> Json:
    before = array(hooks.get(event))
    groups: list[object] = []
    for group in before:
        handlers = array(json_object(group).get("hooks"))
        others = [handler for handler in handlers if not _is_ours(handler, is_ours)]
        if len(others) == len(handlers):
            groups.append(group)
        elif others:
            groups.append({**json_object(group), "hooks": others})
    if groups == before:
        return hooks
    return {name: groups if name == event else value for name, value in hooks.items() if name != event or groups}


def _is_ours(handler: object, is_ours: IsOurs) -> bool:
    command = json_object(handler).get("command")
    return isinstance(command, str) and is_ours(command)


def _check_hooks(hooks: object, file: Path) -> Json:
    """A copy of the settings' `hooks`. Raises `UnusableSettings` when it has another shape."""
    if hooks is None:
        return {}
    if not isinstance(hooks, dict):
        raise UnusableSettings(f'In {file} "hooks" is not an object. The file is left as it is.')
    checked = dict(cast("Json", hooks))
    for event, groups in checked.items():
        if event[:1].isupper() and not isinstance(groups, list):
            raise UnusableSettings(f'In {file} "hooks" has "{event[:40]}", which is not a list. The file is left as it is.')
    return checked


# -- JSON as text


def find_members(text: str) -> list[JsonMember]:
    """The members of the outermost object of text that `parse_settings` has read, or the items of a list, without names."""
    decoder = json.JSONDecoder()
    members: list[JsonMember] = []
    is_list = text.lstrip()[0] == "["
    at = _skip_gap(text, text.index("[" if is_list else "{") + 1)
    while text[at] not in "]}":
        begin, name = at, ""
        if not is_list:
            name, at = cast("tuple[str, int]", decoder.raw_decode(text, at))
            at = _skip_gap(text, _skip_gap(text, at) + 1)
        _, end = cast("tuple[object, int]", decoder.raw_decode(text, at))
        members.append(JsonMember(name, begin, at, end))
        at = _skip_gap(text, end)
        if text[at] == ",":
            at = _skip_gap(text, at + 1)
    return members


def _skip_gap(text: str, at: int) -> int:
    match = _GAP.match(text, at)
    return match.end() if match else at


def find_indent(text: str) -> str:
    """The indent of the first member."""
    match = re.match(r"\s*\{[ \t]*\r?\n([ \t]+)\"", text)
    return match[1] if match else _DEFAULT_INDENT


def find_line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def render_value(text: str, value: object, old: str | None, indent: str, level: int = 1) -> str:
    """The value at that depth of the text. Parts that are in `old` stay as they are written there."""
    dumped = _dump(text, value)
    if old is not None and _dump(text, json.loads(old)) == dumped:
        return old
    if not isinstance(value, (dict, list)) or not value or level > _MULTILINE_LEVELS:
        return dumped
    if isinstance(value, dict):
        old_values = {member.name: old[member.value : member.end] for member in find_members(old)} if old and old[0] == "{" else {}
        parts = [
            f"{_dump(text, name)}: {render_value(text, item, old_values.get(name), indent, level + 1)}"
            for name, item in cast("Json", value).items()
        ]
    else:
        written = [old[item.value : item.end] for item in find_members(old)] if old and old[0] == "[" else []
        old_items = {_dump(text, json.loads(item)): item for item in written}
        parts = [
            old_items.get(_dump(text, item)) or render_value(text, item, None, indent, level + 1)
            for item in cast("list[object]", value)
        ]
    outer = find_line_end(text) + indent * level
    inner = f",{outer}{indent}".join(parts)
    return f"{{{outer}{indent}{inner}{outer}}}" if isinstance(value, dict) else f"[{outer}{indent}{inner}{outer}]"


def _dump(text: str, value: object) -> str:
    """The value in one line, with non-ASCII characters escaped if the text escapes them."""
    is_escaped = text.isascii() and "\\u" in text
    dumped = json.dumps(value, ensure_ascii=is_escaped)
    if not is_escaped and re.search("[\ud800-\udfff]", dumped):  # half of a surrogate pair can only be stored escaped
        dumped = json.dumps(value)
    return dumped


def _refuse_duplicate_names(pairs: list[tuple[str, object]]) -> Json:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"has {json.dumps(duplicate[:40])} twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"has {name}, which is not JSON")
