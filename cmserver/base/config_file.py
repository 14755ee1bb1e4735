"""Adds settings to a TOML file, and leaves everything else in it as it is, except for a byte order mark."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

from cmserver.base.atomic_file import write_file
from cmserver.base.configuration import BadSetting


def add_settings(file: Path, values: Mapping[str, str | int]) -> None:
    """Write the values above the file's text, private to its user; BadSetting with the lines to add if it cannot be changed."""
    _write(file, values, replaced=r"(?:\"\"|'')[ \t]*(?:#.*)?")


def replace_settings(file: Path, values: Mapping[str, str | None]) -> None:
    """Set the values in the file, of which nobody but its user may read a key then; None takes one out.

    BadSetting with the lines to write if it cannot be changed.
    """
    _write(file, values, replaced=r".*")


def _write(file: Path, values: Mapping[str, str | int | None], *, replaced: str) -> None:
    """`replaced` is which values of these names go, as a regular expression."""
    written = {name: value for name, value in values.items() if value is not None}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in written.items()]
    target = file.resolve()
    try:
        before = target.read_text(encoding="utf-8-sig") if target.exists() else ""
        names = "|".join(map(re.escape, values))
        rest = re.sub(rf"(?m)^[ \t]*(?:{names})[ \t]*=[ \t]*{replaced}(?:\n|\Z)", "", before)
        after = "".join([*lines, rest])
        kept = {name: value for name, value in tomllib.loads(before).items() if name not in values or values[name] is not None}
        if tomllib.loads(after) != {**kept, **written}:
            raise _cannot_write(file, lines, "it would change other settings")
        is_shared = target.exists() and not any(map(_is_secret, written))
        write_file(target, after, mode=stat.S_IMODE(target.stat().st_mode) if is_shared else 0o600)
    except tomllib.TOMLDecodeError as error:
        raise _cannot_write(file, lines, f"it sets {', '.join(values)} already, or is no valid TOML") from error
    except UnicodeDecodeError as error:
        raise _cannot_write(file, lines, "it is no UTF-8 text") from error
    except OSError as error:
        raise _cannot_write(file, lines, error.strerror or str(error)) from error


def _is_secret(text: str) -> bool:
    return text.partition(" ")[0].endswith("_api_key")


def _cannot_write(file: Path, lines: list[str], reason: str) -> BadSetting:
    added = ", ".join(f"{line.partition(' ')[0]} = ..." if _is_secret(line) else line.strip() for line in lines)
    return BadSetting(f"{file} cannot be written ({reason}). Add to it yourself: {added}")
