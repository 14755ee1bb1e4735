"""The file in which a repository keeps a project's rules and open decisions: one paragraph an entry, by number.

Texts of the server are Markdown of one line there, and read back to what they were. What the file says is a stranger's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Literal

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.lookalikes import clean_name, remove_invisible
from cmserver.base.text import storable

PATH = ".cmserver/rules.md"
MAX_BYTES = 256_000

Section = Literal["rule", "open"]
"""A rule that holds, or a decision that is still open."""

_HEADINGS: dict[str, Section] = {"## Rules": "rule", "## Open": "open"}
_HEAD = """\
# What this project laid down

<!-- Kept by `cmserver rules write`; `cmserver rules read` takes changes. A paragraph is an entry, a new one has no number. -->
<!-- project: {project} -->
"""
_PROJECT = re.compile(r"^<!-- project: (.*) -->\r?$", re.MULTILINE)
_REFERENCE = re.compile(r"(?:^|\s)\(#(\d{1,15}), ([^#\n]*), ([0-9a-f]{8})\)$")
_DAMAGED_REFERENCE = re.compile(r"(?:^|\s)\(#\d+, [^#\n]*\)$")
_CONFLICT = re.compile(r"(?:<{7}|>{7}|\|{7})(?: |$)|={7}$")
_PUNCTUATION = "!-/:-@\\[-`{-~"
_ESCAPED = re.compile(rf"\\([{_PUNCTUATION}])|<br ?/?>", re.IGNORECASE)
_TO_ESCAPE = re.compile(rf"\\(?=[{_PUNCTUATION}]|$)|<(?=[A-Za-z/!?])", re.MULTILINE)
_STRUCTURE = re.compile(r"[#>+*=|<-]|```|~~~|___|\[[^\]]*\]:")
_LIST_NUMBER = re.compile(r"(\d{1,9})(?=[.)](?: |$))")
_BULLET = re.compile(r"[-*+] +(?=\S)")
_HTML = re.compile(r"<(?!br ?/?>)[A-Za-z/!?]", re.IGNORECASE)
_ESCAPE, _ESCAPE_OR_CODE = re.compile(r"\\."), re.compile(r"\\.|`[^`]*`")
_UNSEEN = re.compile(r"(?:(?:>|(?:[*+-]|\d{1,9}[.)]) ) *)*(?:```|~~~|\[(?:\\.|[^\]\\])*\]:)|(?:[-*_] *){3,}$")
"""What begins so is a fence, the target of a link, or a rule between paragraphs."""
_NAME_CHARS = 80
_NAME_SIGNS = re.compile(r"[#<>`\\\[\]]")
_MAX_ISSUES = 10


class RuleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A paragraph of the file. `mark` stands for what the server said when the file was written; a new one has none.

    `line` is where it begins, and `line_count` how many lines it is.
    """

    section: Section
    text: str
    number: int | None = None
    mark: str | None = None
    line: int = 0
    line_count: int = 1

    @property
    def own_mark(self) -> str:
        """The mark of what it says now."""
        return find_mark(self.section, self.text)


def tidy(text: str) -> str:
    """The text as the file can hold it, by which texts are compared: nothing invisible, no blanks at the ends of lines."""
    lines = remove_invisible(storable(text)).replace("\t", " ").split("\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


def find_mark(section: Section, text: str) -> str:
    return sha256(f"{section}\n{text}".encode()).hexdigest()[:8]


def render_file(project: str, entries: Iterable[tuple[RuleEntry, str]]) -> str:
    """The file of these entries, each with a number and with who said it. The same entries give the same bytes."""
    ordered = sorted(entries, key=lambda pair: pair[0].number or 0)
    parts = [_HEAD.format(project=render_project(project))]
    for heading, section in _HEADINGS.items():
        parts.append(f"{heading}\n")
        parts += [render_entry(entry, author) + "\n" for entry, author in ordered if entry.section == section]
    return "\n".join(parts)


def render_project(project: str) -> str:
    """The project's name, as the head of its file has it."""
    return _NAME_SIGNS.sub(" ", clean_name(project)).strip()


def find_project(raw: bytes) -> str | None:
    """The name in the head of a file; None for a file that names no project."""
    head, _, _ = raw.decode(errors="replace").partition("\n## ")
    found = _PROJECT.search(head)
    return found[1] if found else None


def render_entry(entry: RuleEntry, author: str) -> str:
    """A paragraph, which is one line."""
    name = _NAME_SIGNS.sub(" ", clean_name(author))[:_NAME_CHARS].strip() or "unknown"
    return f"{_escape(entry.text)} (#{entry.number}, {name}, {entry.own_mark})"


def parse_file(raw: bytes) -> list[RuleEntry]:
    """The entries of a file. Invalid, with lines, for one that is too large, has a conflict of git, or is no such file."""
    if len(raw) > MAX_BYTES:
        raise Invalid(f"{PATH} is larger than {MAX_BYTES // 1_000} kB. A file of rules is not.")
    lines = raw.decode(errors="replace").replace("\r\n", "\n").split("\n")
    if conflicts := [place for place, line in enumerate(lines, 1) if _CONFLICT.match(line)]:
        raise Invalid(f"{PATH} has a conflict of git that is not resolved, in {_name_lines(conflicts)}.")
    entries: list[RuleEntry] = []
    problems: list[str] = []
    for section, place, words in _read_paragraphs(lines, problems):
        try:
            entries.append(_parse_entry(section, place, words))
        except Invalid as error:
            problems.append(str(error))
    places: dict[int | str, int] = {}
    for entry in entries:
        first = places.setdefault(entry.number or entry.text, entry.line)
        if first != entry.line:
            both = f"are both #{entry.number}" if entry.number else "say the same, both without a number"
            problems.append(f"Lines {first} and {entry.line} {both}.")
    if problems:
        raise Invalid("\n  ".join([f"{PATH} cannot be read:", *problems[:_MAX_ISSUES]]))
    return entries


def parse_line(line: str) -> RuleEntry | None:
    """The numbered entry that a line of a former version ended, as if it were a rule; None for anything else."""
    reference = _REFERENCE.search(line)
    if reference is None:
        return None
    text = _unescape(line[: reference.start()])
    return RuleEntry(section="rule", text=text, number=int(reference[1]), mark=reference[3])


def _parse_entry(section: Section, line: int, words: Sequence[str]) -> RuleEntry:
    """The entry that a paragraph of these lines is. Invalid for one that hides something, or whose reference is damaged."""
    paragraph = " ".join(words)
    reference = _REFERENCE.search(paragraph)
    raw = paragraph[: reference.start()] if reference else paragraph
    if _has_html(raw) or any(_UNSEEN.match(line) for line in (paragraph, *words)):
        raise Invalid(
            f"Line {line} has HTML, a fence, the target of a link, or a rule between paragraphs, which readers of the page do not "
            "see as text. Write `\\<b>` for `<b>`, and a backslash before a first sign."
        )
    if reference is None and _DAMAGED_REFERENCE.search(raw):
        raise Invalid(f"Line {line} ends in a reference without its mark. Keep it as it was, or leave it out for a new entry.")
    text = _unescape(raw)
    if not text:
        raise Invalid(f"Line {line} has no text. Remove the whole paragraph for what no longer holds.")
    number, mark = (int(reference[1]), reference[3]) if reference else (None, None)
    return RuleEntry(section=section, text=text, number=number, mark=mark, line=line, line_count=len(words))


def _unescape(raw: str) -> str:
    return tidy(_ESCAPED.sub(lambda found: found[1] or "\n", raw))


def _has_html(raw: str) -> bool:
    """Whether it has HTML. What stands in code of one backtick is shown; with longer runs nothing counts as code."""
    return _HTML.search((_ESCAPE if "``" in raw else _ESCAPE_OR_CODE).sub(" ", raw)) is not None


def _read_paragraphs(lines: Sequence[str], problems: list[str]) -> Iterator[tuple[Section, int, list[str]]]:
    """Section, place and lines of each paragraph; what is none of ours goes to `problems`."""
    section: Section | None = None
    words: list[str] = []
    start = 0
    for place, raw in enumerate([*lines, ""], 1):
        line = remove_invisible(raw).replace("\n", " ").strip()
        is_heading = re.match(r"#{1,6}(?: |$)", line) is not None
        bullet = _BULLET.match(line)
        if words and section is not None and (not line or is_heading or bullet or _REFERENCE.search(words[-1])):
            yield section, start, words
            words = []
        if not line:
            continue
        if line in _HEADINGS:
            section = _HEADINGS[line]
        elif section is None:
            if not (line.startswith("# ") or (line.startswith("<!--") and line.endswith("-->"))):
                problems.append(f"Line {place} stands before `## Rules` and `## Open`.")
        elif is_heading:
            problems.append(f"Line {place} is a heading other than `## Rules` and `## Open`.")
        else:
            start = start if words else place
            words.append(line[bullet.end() :] if bullet and not _UNSEEN.match(line) else line)
    if section is None:
        problems.append("It has neither `## Rules` nor `## Open`.")


def _escape(text: str) -> str:
    """The text on one line of Markdown, with nothing that would be structure."""
    escaped = _TO_ESCAPE.sub(lambda found: f"\\{found[0]}", text)
    if _STRUCTURE.match(escaped):
        escaped = f"\\{escaped}"
    if number := _LIST_NUMBER.match(escaped):
        escaped = f"{number[1]}\\{escaped[number.end() :]}"
    return escaped.replace("\n", "<br>")


def _name_lines(places: Sequence[int]) -> str:
    shown = ", ".join(map(str, places[:_MAX_ISSUES]))
    return f"line{'s' if len(places) > 1 else ''} {shown}{' and more' if len(places) > _MAX_ISSUES else ''}"
