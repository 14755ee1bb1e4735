"""Reads what Claude Code keeps of its projects: the notes of its auto-memory, and the transcripts of its sessions.

Neither form is documented; https://code.claude.com/docs/en/memory says where the notes lie. A folder of `projects` has a transcript
of each session (`<session id>.jsonl`, a JSON object on each line), those of sub-agents apart, and the notes below `memory`.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from uuid import UUID

import msgspec
import yaml

from cmserver.access.projects import display_name
from cmserver.base.errors import Invalid
from cmserver.base.ids import from_iso
from cmserver.client.client_folder import read_project
from cmserver.models.providers.model import DraftSummary
from cmserver.observations.model import INSTRUCTION_IMPORTANCE, compose
from cmserver.observations.tidy import tidy_line, tidy_text
from cmserver.ops.transfer.ids import derive_id
from cmserver.ops.transfer.model import DataLine, ObservationLine, ProjectLine, RefusedLine, SessionLine, TurnLine
from cmserver.tooluse.model import ToolKind, WorkingFolder
from cmserver.tooluse.read import read_tool_use
from cmserver.tooluse.typed_prompt import typed_text

_NAME = "claude-code"
_INDEX = "MEMORY.md"
_YEAR_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_NOTE_BYTES = 1 << 20
_MAX_LINE_BYTES = 64 << 20
_MAX_FILES = 100
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+)$", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*(```|~~~)[^`\n]*$.*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_QUOTED = re.compile(r"^[ \t]*>[ \t]?", re.MULTILINE)
_ITEM = re.compile(r"(?:[-*+•]|\d{1,9}[.)])[ \t]+")
_PARAGRAPH_END = re.compile(rf"\n[ \t]*(?:\n|{_ITEM.pattern})")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)\s+(?=[\"'(A-ZÀ-Þ`])")
_RULE_CHARS = 4000
"""In so much of a note its rule is looked for."""
_RULE_WORDS = 3
_LINKED_NOTE = re.compile(r"^\s*[-*][ \t].*\]\(([^()]+\.md)\).*$", re.MULTILINE)
_SUMMARY_START = re.compile(r"\A.*?^(?:<summary>|Summary:)\s*", re.DOTALL | re.MULTILINE)
"""What Claude Code writes before the summary of a session whose context was compacted."""


class _Message(msgspec.Struct):
    """A message as the model's API has it: a text, or blocks."""

    content: str | list[dict[str, object]] = ""


_MESSAGE = msgspec.json.Decoder(_Message)


class _Attachment(msgspec.Struct, rename="camel"):
    """What stands beside the messages; of type `queued_command` what the user typed while the model worked."""

    type: str = ""
    prompt: str | list[dict[str, object]] = ""
    command_mode: str = "prompt"


_ATTACHMENT = msgspec.json.Decoder(_Attachment)


class _Entry(msgspec.Struct, rename="camel"):
    """A line of a transcript."""

    type: str = ""
    uuid: str | None = None
    timestamp: str | None = None
    cwd: str | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    custom_title: str | None = None
    ai_title: str | None = None
    message: msgspec.Raw = msgspec.Raw(b"{}")
    attachment: msgspec.Raw = msgspec.Raw(b"{}")


class _Transcript(msgspec.Struct, kw_only=True):
    """What a transcript says of its session; the turns are read again when they are stored."""

    file: Path
    session_id: UUID
    project_id: UUID
    folder: str
    title: str | None
    started_at: datetime
    ended_at: datetime
    summaries: list[tuple[str, datetime, str]]
    """Id, time and text of each."""
    prompts: int


class ClaudeCodeSource:
    """The lines of a folder of Claude Code (`~/.claude`). Invalid when it is none."""

    name = _NAME
    has_own_ids = False

    def __init__(self, folder: Path) -> None:
        self._root = folder / "projects"  # which may be a link itself
        self._home = self._root.resolve()
        if not self._root.is_dir():
            raise Invalid(f"There is no folder {self._root}. Name Claude Code's folder: `cmserver import claude-code FOLDER`.")
        self._decoder = msgspec.json.Decoder(_Entry)
        self._names: dict[str, str] = {}
        """Folder -> what hooks call its project."""
        self._refused: list[RefusedLine] = []
        self._transcripts, self._notes = self._scan()

    def count(self) -> int:
        sessions = sum(1 + transcript.prompts + len(transcript.summaries) for transcript in self._transcripts)
        return sessions + len(self._notes) + len(set(self._names.values()))

    def project_ids(self) -> set[UUID]:
        return set()

    def lines(self) -> Iterator[tuple[str, DataLine] | RefusedLine]:
        yield from self._refused
        for name in dict.fromkeys(self._names.values()):
            line = ProjectLine(id=_project_id(name), canonical_id=name, name=display_name(name), created_at=_YEAR_1970)
            yield f"project {name}", line
        for transcript in self._transcripts:
            yield str(transcript.file), _session_line(transcript)
        seen: set[str] = set()
        for transcript in self._transcripts:
            try:
                for turn in self._turns(transcript, seen):
                    yield f"{transcript.file}, prompt {turn.prompt_number}", turn
            except OSError as error:
                yield _refused("prompt", transcript.file, error)
        for transcript in self._transcripts:
            for id_, at, text in transcript.summaries:
                if id_ not in seen:
                    seen.add(id_)
                    yield str(transcript.file), _summary_line(transcript, id_, at, text)
        yield from self._notes

    def _scan(self) -> tuple[list[_Transcript], list[tuple[str, DataLine]]]:
        """What there is to take, without the turns."""
        transcripts: list[_Transcript] = []
        notes: list[tuple[str, DataLine]] = []
        for folder in sorted(path for path in self._root.iterdir() if path.is_dir()):
            # The files of sub-agents are named agent-…; what they found is in the turns of the session that asked them.
            files = [file for file in sorted(folder.glob("*.jsonl")) if not file.name.startswith("agent-")]
            files = [file for file in files if self._is_taken("session", file)]
            found = [transcript for file in files if (transcript := self._read_transcript(file)) is not None]
            transcripts += found
            notes += self._read_notes(folder, found[0].folder if found else None)
        # A fork begins with a copy of its origin: in this order a turn is always taken from the same one.
        return sorted(transcripts, key=lambda transcript: (transcript.started_at, transcript.file.name)), notes

    def _is_taken(self, record: str, file: Path) -> bool:
        """Whether it is a file of this folder: neither a link out of it, nor a pipe, which is read without end."""
        if not file.resolve().is_relative_to(self._home):
            self._refused.append(_refused(record, file, "It is a link to something outside of the folder."))
        elif not file.is_file():
            self._refused.append(_refused(record, file, "It is no plain file."))
        else:
            return True
        return False

    # -- transcripts

    def _entries(self, file: Path) -> Iterator[_Entry]:
        """The lines of the session itself that are understood. The last one may be half written while the session runs."""
        with file.open("rb") as opened:
            while line := opened.readline(_MAX_LINE_BYTES):
                try:
                    entry = self._decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue
                if not entry.is_sidechain:
                    yield entry

    def _is_readable(self, file: Path) -> bool:
        """Whether a line can be read, or there is none."""
        with file.open("rb") as opened:
            first = opened.readline(_MAX_LINE_BYTES)
            for line in itertools.chain([first], opened):
                with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    self._decoder.decode(line)
                    return True
        return not first

    def _read_transcript(self, file: Path) -> _Transcript | None:
        """None for a file in which no user has typed anything."""
        times: list[datetime] = []
        folder = title = ai_title = None
        summaries: list[tuple[str, datetime, str]] = []
        prompts = 0
        try:
            for entry in self._entries(file):
                folder = folder or entry.cwd
                title, ai_title = entry.custom_title or title, entry.ai_title or ai_title
                if (at := _parse_time(entry.timestamp)) is None:
                    continue
                times = [min(times[0], at), max(times[1], at)] if times else [at, at]
                if entry.is_compact_summary:
                    summaries.append((entry.uuid or f"{file.stem} {at}", at, _text_of(_blocks(entry))))
                elif _prompt_of(entry):
                    prompts += 1
        except OSError as error:
            self._refused.append(_refused("session", file, error))
            return None
        if not times or folder is None or not prompts + len(summaries):
            if not self._is_readable(file):
                self._refused.append(_refused("session", file, "No line of it can be read."))
            return None
        return _Transcript(
            file=file,
            session_id=derive_id(_NAME, f"session {file.stem}", times[0]),
            project_id=_project_id(self._project_of(folder)),
            folder=folder,
            title=tidy_line(title or ai_title),
            started_at=times[0],
            ended_at=times[1],
            summaries=summaries,
            prompts=prompts,
        )

    def _turns(self, transcript: _Transcript, seen: set[str]) -> Iterator[TurnLine]:
        """The turns that are in no earlier transcript; their numbers count all of the session's."""
        turn: TurnLine | None = None
        reply: list[str] = []
        files: dict[str, None] = {}
        is_answered, number = False, 0
        ended_at = transcript.started_at
        for entry in self._entries(transcript.file):
            at = _parse_time(entry.timestamp) or ended_at
            if prompt := _prompt_of(entry):
                yield from _finished(turn, reply, files, ended_at)
                number += 1
                id_ = entry.uuid or f"{transcript.file.stem} {number}"
                turn, reply, files, is_answered = None, [], {}, False
                if id_ not in seen:
                    seen.add(id_)
                    turn = TurnLine(
                        id=derive_id(_NAME, f"turn {id_}", at),
                        project_id=transcript.project_id,
                        server_session_id=transcript.session_id,
                        prompt_number=number,
                        text=prompt,
                        created_at=at,
                    )
            elif entry.type == "assistant" and turn is not None:
                for block in _blocks(entry):
                    if block.get("type") == "tool_use":
                        is_answered = False
                        files |= dict.fromkeys(_changed_files(block, transcript.folder))
                    elif block.get("type") == "text" and (text := str(block.get("text") or "").strip()):
                        # What it says between tool uses is no answer.
                        reply = [*reply, text] if is_answered else [text]
                        is_answered = True
                ended_at = at
        yield from _finished(turn, reply, files, ended_at)

    def _project_of(self, folder: str) -> str:
        """What hooks call the project of the folder, which may be gone."""
        if folder not in self._names:
            path = Path(folder)
            self._names[folder] = (read_project(path) if path.is_absolute() and path.is_dir() else None) or folder
        return self._names[folder]

    # -- notes

    def _read_notes(self, folder: Path, project_folder: str | None) -> Iterator[tuple[str, DataLine]]:
        for file in sorted((folder / "memory").rglob("*.md")):
            if not self._is_taken("observation", file):
                continue
            try:
                if file.stat().st_size > _MAX_NOTE_BYTES:
                    self._refused.append(_refused("observation", file, "It is larger than 1 MiB."))
                    continue
                text, changed_at = file.read_text(errors="replace"), datetime.fromtimestamp(file.stat().st_mtime, UTC)
            except OSError as error:
                self._refused.append(_refused("observation", file, error))
                continue
            project_folder = project_folder or _unescape(folder.name)
            if project_folder is None:
                self._refused.append(_refused("observation", file, "No transcript says which folder it is about."))
            elif (line := _note_line(file, text, changed_at, _project_id(self._project_of(project_folder)))) is not None:
                yield str(file), line


def _refused(record: str, file: Path, reason: OSError | str) -> RefusedLine:
    text = (reason.strerror or str(reason)) if isinstance(reason, OSError) else reason
    return RefusedLine(record=record, place=str(file), reason=text)


def _session_line(transcript: _Transcript) -> SessionLine:
    return SessionLine(
        id=transcript.session_id,
        project_id=transcript.project_id,
        external_session_id=transcript.file.stem,
        content_session_id=transcript.file.stem,
        platform_source=_NAME,
        title=transcript.title,
        started_at=transcript.started_at,
        ended_at=transcript.ended_at,
    )


def _finished(turn: TurnLine | None, reply: list[str], files: dict[str, None], ended_at: datetime) -> Iterator[TurnLine]:
    """The turn with its answer; none for a command of the program itself, such as /clear, which nobody answers."""
    if turn is None or (turn.text.startswith("/") and not reply):
        return
    yield msgspec.structs.replace(
        turn, reply=tidy_text("\n\n".join(reply)), files=[*files][:_MAX_FILES], ended_at=max(ended_at, turn.created_at)
    )


def _summary_line(transcript: _Transcript, id_: str, at: datetime, text: str) -> ObservationLine:
    """What Claude Code summed up when it compacted the session's context."""
    completed = tidy_text(_SUMMARY_START.sub("", text, count=1)) or tidy_text(text)
    return ObservationLine(
        id=derive_id(_NAME, f"summary {id_}", at),
        project_id=transcript.project_id,
        server_session_id=transcript.session_id,
        kind="summary",
        title=transcript.title or "Session summary",
        summary={"completed": completed},
        content=DraftSummary(completed=completed).text,
        metadata={"importedFrom": _NAME},
        created_at=at,
        updated_at=at,
    )


def _note_line(file: Path, text: str, changed_at: datetime, project_id: UUID) -> ObservationLine | None:
    """A note; None for an index, which only lists the others. One that was changed is another one."""
    fields, body = _split_front_matter(text)
    if file.name == _INDEX:
        body = _LINKED_NOTE.sub(lambda link: "" if (file.parent / link[1]).is_file() else link[0], body)
        if not _HEADING.sub("", body).strip():
            return None
    heading = _HEADING.search(body)
    name = _text_field(fields, "name") or (heading[1] if heading else None) or file.stem.replace("_", " ").replace("-", " ")
    description = _text_field(fields, "description")
    narrative = tidy_text(body)
    metadata = fields.get("metadata")
    type_ = _text_field(fields, "type") or (
        _text_field(cast("dict[object, object]", metadata), "type") if isinstance(metadata, dict) else None
    )
    is_instruction = type_ == "feedback"
    # The title is all that sessions are told of a note at first: its name would say nothing.
    rule = _find_rule(body) if is_instruction else None
    title = tidy_line(rule or description or (heading[1] if is_instruction and heading else None) or name)
    subtitle = tidy_text(name if description and not rule else description)
    return ObservationLine(
        id=derive_id(_NAME, f"note {file.parent} {file.name} {hashlib.sha256(text.encode()).hexdigest()}", _YEAR_1970),
        project_id=project_id,
        kind="manual",
        type="decision" if is_instruction else "discovery",
        caller_type=tidy_line(type_),
        title=title,
        subtitle=subtitle,
        narrative=narrative,
        importance=INSTRUCTION_IMPORTANCE if is_instruction else 0.5,
        content=compose(title, subtitle, narrative, None),
        metadata={"importedFrom": _NAME},
        agent=_NAME,
        created_at=changed_at,
        updated_at=changed_at,
    )


def _find_rule(body: str) -> str | None:
    """What an instruction lays down: its heading, else the beginning of its first paragraph; None where neither is a sentence."""
    text = _FENCE.sub("", _QUOTED.sub("", body[:_RULE_CHARS].replace("**", ""))).strip()
    heading = _HEADING.match(text)
    paragraph = _PARAGRAPH_END.split(_HEADING.sub("", text).strip(), maxsplit=1)[0]
    sentences: list[str] = _SENTENCE_END.split(" ".join(_ITEM.sub("", paragraph, count=1).split()))
    longer: list[str] = list(itertools.accumulate(sentences, "{} {}".format))  # "No." alone says nothing
    candidates: list[str] = [str(heading[1]), *longer] if heading else longer
    return next(filter(_is_rule, candidates), None)


def _is_rule(text: str) -> bool:
    is_lead = text.endswith(":") or text.lower().startswith("why:")
    return not is_lead and len(re.findall(r"\w+", text)) >= _RULE_WORDS


def _split_front_matter(text: str) -> tuple[dict[object, object], str]:
    found = _FRONT_MATTER.match(text)
    if found is None:
        return {}, text
    try:
        fields: object = yaml.safe_load(found[1])
    except (yaml.YAMLError, ValueError, RecursionError):
        fields = None
    return cast("dict[object, object]", fields) if isinstance(fields, dict) else {}, text[found.end() :]


def _text_field(fields: dict[object, object], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value.strip() else None


def _unescape(name: str) -> str | None:
    """The folder that a folder of `projects` is named for, where it can still be told: / and - are both written as -."""
    path = Path("/" + name.strip("-").replace("-", "/"))
    return str(path) if path.is_dir() else None


def _prompt_of(entry: _Entry) -> str | None:
    """What the user typed, if the line is a prompt, or one that was typed while the model worked."""
    if entry.type == "attachment":
        return tidy_text(typed_text(_text_of(_queued_blocks(entry))))
    if entry.type != "user" or entry.is_meta or entry.is_compact_summary:
        return None
    blocks = _blocks(entry)
    if any(block.get("type") == "tool_result" for block in blocks):
        return None
    return tidy_text(typed_text(_text_of(blocks)))


def _text_of(blocks: list[dict[str, object]]) -> str:
    return "\n\n".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")


def _blocks(entry: _Entry) -> list[dict[str, object]]:
    """What the message consists of; nothing where it is not understood."""
    try:
        content = _MESSAGE.decode(entry.message).content
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _queued_blocks(entry: _Entry) -> list[dict[str, object]]:
    try:
        attachment = _ATTACHMENT.decode(entry.attachment)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    if attachment.type != "queued_command" or attachment.command_mode != "prompt":
        return []
    return [{"type": "text", "text": attachment.prompt}] if isinstance(attachment.prompt, str) else attachment.prompt


def _changed_files(block: dict[str, object], folder: str) -> list[str]:
    name = block.get("name")
    use = read_tool_use(name if isinstance(name, str) else None, block.get("input"))
    return [WorkingFolder(folder).relative(path) for path in use.paths] if use.kind in {ToolKind.EDIT, ToolKind.WRITE} else []


def _parse_time(text: str | None) -> datetime | None:
    try:
        return from_iso((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None


def _project_id(name: str) -> UUID:
    return derive_id(_NAME, f"project {name}", _YEAR_1970)
