"""Adds settings to a TOML file, and leaves everything else in it as it is, except for a byte order mark."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cmserver.base.atomic_file import write_file
from cmserver.base.configuration import BadSetting


def add_settings(file: Path, values: Mapping[str, str | int]) -> None:
    """Write the values above the file's text, private to its user; BadSetting with the lines to add if it cannot be changed."""
    _write(file, values, replaced=r"(?:\"\"|'')", closes=False)


def replace_settings(file: Path, values: Mapping[str, str | None]) -> None:
    """Set the values in the file, which nobody but its user may read then if a key is in it; None takes a value out.

    BadSetting with the lines to write if it cannot be changed.
    """
    _write(file, values, replaced=r"(?:\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^#\"'\n]*)", closes=True)


@contextmanager
def locked_folder(folder: Path) -> Generator[None]:
    """Waits for whoever changes settings in that folder by this, in whatever process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(file: Path, values: Mapping[str, str | int | None], *, replaced: str, closes: bool) -> None:
    """`replaced` is which values of these names go, as a regular expression; `closes` is whether others may read no key."""
    written = {name: value for name, value in values.items() if value is not None}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in written.items()]
    target = file.resolve()
    try:
        before = target.read_text(encoding="utf-8-sig") if target.exists() else ""
        names = "|".join(map(re.escape, values))
        comments: dict[str, str] = {}

        def take_out(line: re.Match[str]) -> str:
            comment = line["comment"] or ""
            if line["name"] not in written:
                return f"{comment}\n" if comment else ""
            comments[line["name"]] = f"  {comment}" if comment else ""
            return ""

        pattern = rf"(?m)^[ \t]*(?P<name>{names})[ \t]*=[ \t]*{replaced}[ \t]*(?P<comment>#.*)?(?:\n|\Z)"
        rest = re.sub(pattern, take_out, before)
        after = "".join([*(f"{line[:-1]}{comments.get(line.partition(' ')[0], '')}\n" for line in lines), rest])
        kept = {name: value for name, value in tomllib.loads(before).items() if name not in values or values[name] is not None}
        expected = {**kept, **written}
        if tomllib.loads(after) != expected:
            raise _cannot_write(file, lines, "it would change other settings")
        is_shared = target.exists() and not (closes and any(map(_is_secret, expected)))
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
