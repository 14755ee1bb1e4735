"""Reads an export of cmserver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import msgspec

from cmserver.base.errors import Invalid
from cmserver.ops.transfer.model import FORMAT, LINE_TYPES, AnyLine, DataLine, HeaderLine, ProjectLine, RefusedLine, record_name

_BLOCK_BYTES = 1 << 20
_MAX_LINE_BYTES = 64 << 20


_RECORDS = {record_name(line_type) for line_type in LINE_TYPES}


class _Tag(msgspec.Struct):
    record: str


def _find_record(text: bytes) -> str:
    """What the line is, as far as it says so; else "line"."""
    try:
        record = msgspec.json.decode(text, type=_Tag).record
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "line"
    return record if record in _RECORDS else "line"


class JsonlSource:
    """The lines of a file. Invalid when the file is no export, or one of a newer program."""

    name = "jsonl"
    has_own_ids = True

    def __init__(self, file: Path) -> None:
        self._file = file
        self._decoder = msgspec.json.Decoder(AnyLine)
        try:
            with file.open("rb") as opened:
                header = self._decoder.decode(opened.readline(_BLOCK_BYTES))
        except OSError as error:
            raise Invalid(f"{file} cannot be read: {error.strerror or error}.") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            header = None
        if not isinstance(header, HeaderLine):
            raise Invalid(f'{file} is no export: its first line must be {{"record":"export","format":{FORMAT}}}.')
        if header.format > FORMAT:
            raise Invalid(f"{file} was made by a newer cmserver (format {header.format}). Upgrade this one, then import.")

    def count(self) -> int:
        lines = 0
        with self._file.open("rb") as opened:
            while block := opened.read(_BLOCK_BYTES):
                lines += block.count(b"\n")
        return lines - 1

    def project_ids(self) -> set[UUID]:
        ids: set[UUID] = set()
        for line in self.lines():
            if isinstance(line, RefusedLine):
                continue
            if not isinstance(line[1], ProjectLine):
                break
            ids.add(line[1].id)
        return ids

    def lines(self) -> Iterator[tuple[str, DataLine] | RefusedLine]:
        with self._file.open("rb") as opened:
            number = 0
            while text := opened.readline(_MAX_LINE_BYTES):
                number += 1
                if number == 1 or text.isspace():
                    continue
                place = f"line {number}"
                try:
                    line = self._decoder.decode(text)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    yield RefusedLine(record=_find_record(text), place=place, reason=str(error) or "It is nested too deeply.")
                    continue
                if isinstance(line, HeaderLine):
                    yield RefusedLine(record="line", place=place, reason="A second header: import one export after the other.")
                else:
                    yield place, line
