"""Reads what an edit changed: from the inputs and patches of editing tools to one `FileChange` for each file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from cmserver.base.text import join_names, shorten
from cmserver.base.tolerant_json import array, field, number, record
from cmserver.reading import symbols
from cmserver.reading.model import FileChange, Phrase, Verb
from cmserver.reading.text import count_lines, count_noun, first_line
from cmserver.tooluse.model import ToolUse, WorkingFolder
from cmserver.tooluse.read import BEGIN_PATCH

PATCH_MOVE = re.compile(r"^\*\*\* Move to: (.+)", re.MULTILINE)
_CUT = " left out, but for these ...]"
"""Of the files in the middle of a long patch the names are left."""
PATCH_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_MAX_DIFFED = 200_000
"""Lines before and after of one event's edits that are compared; those of further edits are counted."""
_MAX_HUNKS = 100
_MAX_LINES = 5_000
"""Hunks and lines of one file in one event that are read for names and samples; the rest is counted."""
_LOOK_BACK = 600


def merge_by_path(changes: Iterable[FileChange]) -> dict[str, FileChange]:
    """One change for each file, by path, in the order the files were first touched."""
    by_path: dict[str, list[FileChange]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    return {path: _merge(same_file) if len(same_file) > 1 else same_file[0] for path, same_file in by_path.items()}


def _merge(changes: list[FileChange]) -> FileChange:
    """The changes of one file as one: what comes after a change of the whole file is part of it."""
    phrases: dict[str, Phrase] = {}
    import_samples, samples = list[str](), list[str]()
    for change in changes:
        for phrase in change.phrases:
            phrases.setdefault(phrase.thing, phrase)
        if all(phrase.imports for phrase in phrases.values()):
            import_samples = [*change.samples, *import_samples]
        else:
            samples += change.samples
        if change.whole:
            break
    return FileChange(
        path=changes[0].path,
        plus=sum(change.plus for change in changes),
        minus=sum(change.minus for change in changes),
        phrases=[phrase for phrase in phrases.values() if not phrase.imports] or list(phrases.values()),
        samples=[*samples, *import_samples],
    )


def read_file_changes(use: ToolUse, folder: WorkingFolder) -> list[FileChange]:
    """Every file that an editing tool, or a patch, changed; empty when the edit had no effect or names no file."""
    if BEGIN_PATCH in use.patch:
        return _read_patch(use.patch, folder)
    path = folder.relative(use.path)
    if not path:
        return []
    if "new_source" in use.fields:
        return [_read_notebook(path, use.fields)]
    if hunks := read_hunks(use.fields, use.answer):
        change = _describe(path, hunks)
        return [change] if change.plus or change.minus else []
    return _read_write(path, use.fields, use.answer)


def write_file(path: str, content: str, *, verb: Verb = "added") -> FileChange:
    """A file written as a whole; `verb` is `rewrote` for one that was there before."""
    lines = content.splitlines()
    if verb == "rewrote":
        return FileChange(path=path, plus=count_lines(content), phrases=[Phrase(verb, short_path(path), whole=True)])
    names = [name for line in lines[:_MAX_LINES] if symbols.indent(line) == 0 and (name := symbols.defined(path, line))]
    first = first_line(content)
    samples = [f"`{shorten(first, 70)}`"] if first and not names else []
    members = names[:1] if symbols.suffix(path) in {".md", ".mdx"} else [] if symbols.suffix(path) == ".toml" else names
    return FileChange(
        path=path, plus=count_lines(content), phrases=[Phrase(verb, short_path(path), whole=True, members=members)], samples=samples
    )


def append_to_file(path: str, content: str) -> FileChange:
    return _describe(path, [Hunk([], ["+" + line for line in content.splitlines()])])


def change_whole_file(path: str, verb: Verb, samples: list[str] | None = None) -> FileChange:
    """A file changed or removed by a command: how many lines is not known."""
    return FileChange(path=path, phrases=[Phrase(verb, short_path(path), whole=True)], samples=samples or [])


def move_file(old: str, new: str) -> FileChange:
    return FileChange(path=new, phrases=[Phrase("moved", f"{short_path(old)} to {short_path(new)}", whole=True)])


def short_path(path: str) -> str:
    return path if len(path) <= 32 else path.replace("\\", "/").rsplit("/", 1)[-1]


class Hunk(msgspec.Struct):
    """A run of lines as in a unified diff (' ', '+', '-'), with what stands above it in the file."""

    above: list[str]
    lines: list[str]
    plus: int = 0
    """Lines that are counted only."""
    minus: int = 0


def _read_notebook(path: str, fields: dict[str, object]) -> FileChange:
    """The change of one cell."""
    verbs: dict[str, Verb] = {"insert": "added", "delete": "removed"}
    source = field(fields, "new_source")
    first = first_line(source)
    return FileChange(
        path=path,
        plus=len(source.splitlines()),
        phrases=[Phrase(verbs.get(field(fields, "edit_mode"), "changed"), "a cell")],
        samples=[f"`{shorten(first, 70)}`"] if first else [],
    )


def _read_write(path: str, fields: dict[str, object], answer: dict[str, object]) -> list[FileChange]:
    """The change that a written content makes; none when the file stays the same."""
    content, before = field(fields, "content", "file_text", "contents", "text"), field(answer, "originalFile")
    if not content or content == before:
        return []
    if before:
        lines = _diff(before.splitlines(), content.splitlines())
        if len(lines) < len(content.splitlines()):
            return [_describe(path, [Hunk([], lines)])]
    existed = bool(before) or field(answer, "type") == "update"
    return [write_file(path, content, verb="rewrote" if existed else "added")]


def read_hunks(fields: dict[str, object], answer: dict[str, object]) -> list[Hunk]:
    """The hunks of an edit: those the agent reports, else diffs of the replaced texts."""
    original = field(answer, "originalFile").splitlines()
    hunks: list[Hunk] = []
    for entry in map(record, array(answer.get("structuredPatch"))):
        lines = [line for line in array(entry.get("lines")) if isinstance(line, str) and line[:1] in {" ", "+", "-"}]
        if lines:
            above = _lines_above(original, number(entry.get("oldStart")) - 1, lines) if len(hunks) < _MAX_HUNKS else []
            hunks.append(Hunk(above, lines))
    if hunks:
        return hunks
    diffed = 0
    for edit in [record(edit) for edit in array(fields.get("edits"))] or [fields]:
        old, new = field(edit, "old_string", "old_str", "oldText"), field(edit, "new_string", "new_str", "newText")
        if old == new:
            continue
        before, after = old.splitlines(), new.splitlines()
        diffed += len(before) + len(after)
        counted_only = Hunk([], [], plus=count_lines(new), minus=count_lines(old))
        is_cut = counted_only.plus > len(after) or counted_only.minus > len(before)
        hunks.append(counted_only if diffed > _MAX_DIFFED or is_cut else Hunk([], _diff(before, after)))
    return hunks


def _lines_above(original: list[str], start: int, lines: list[str]) -> list[str]:
    """The file above a hunk, unless what was recorded of the file does not fit the hunk (it may be shortened)."""
    first_old = next((line[1:] for line in lines if line[0] != "+"), None)
    if 0 <= start < len(original) and original[start] == first_old:
        return original[max(0, start - _LOOK_BACK) : start]
    return []


def _diff(old: list[str], new: list[str]) -> list[str]:
    """A one-hunk diff: what both begin with is context, what both end with is left out."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    removed, added = old[head : len(old) - tail], new[head : len(new) - tail]
    return [*(" " + line for line in old[:head]), *("-" + line for line in removed), *("+" + line for line in added)]


def _read_patch(patch: str, folder: WorkingFolder) -> list[FileChange]:
    """The changes of a patch in the form of `apply_patch`, file by file."""
    changes: list[FileChange] = []
    pieces = PATCH_FILE.split(patch)
    for action, name, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        path = folder.relative(name.strip())
        lines = ["  " + line[2:].strip() if line[:2] == "@@" else line for line in body.splitlines()]
        moved = PATCH_MOVE.search(body)
        lines = [line for line in lines if line[:1] in {" ", "+", "-"}]
        if moved:
            new = folder.relative(moved[1].strip())
            changes.append(msgspec.structs.replace(_describe(new, [Hunk([], lines)]), phrases=move_file(path, new).phrases))
        elif action == "Update" and not lines and _CUT in patch:
            changes.append(change_whole_file(path, "changed"))
        elif action == "Add":
            changes.append(write_file(path, "\n".join(line[1:] for line in lines)))
        elif action == "Delete":
            changes.append(change_whole_file(path, "removed"))
        else:
            changes.append(_describe(path, [Hunk([], lines)]))
    return [change for change in changes if change.path and (change.whole or change.plus or change.minus)]


class _Names:
    """The names that the changed lines of one file define or stand in."""

    def __init__(self) -> None:
        self.added: dict[str, str] = {}
        """Name to the line that defines it."""
        self.removed: dict[str, str] = {}
        self.touched: dict[str, None] = {}

    def phrases(self) -> list[Phrase]:
        """What became of each name: added, changed, removed, or one renamed to another."""
        both = [name for name in self.added if name in self.removed]
        added = [name for name in self.added if name not in self.removed]
        removed = [name for name in self.removed if name not in self.added]
        changed = [name for name in dict.fromkeys([*both, *self.touched]) if name not in {*added, *removed}]
        phrases = [Phrase("changed", name) for name in changed]
        if len(added) == len(removed) == 1 and self._is_renamed(removed[0], added[0]):
            return [Phrase("renamed", f"{removed[0]} to {added[0]}"), *phrases]
        return [*(Phrase("added", name) for name in added), *phrases, *(Phrase("removed", name) for name in removed)]

    def _is_renamed(self, old: str, new: str) -> bool:
        """True when nothing but the name differs in the defining line."""
        return self.removed[old].replace(old.rpartition(".")[2], new.rpartition(".")[2], 1) == self.added[new]


def _describe(path: str, hunks: list[Hunk]) -> FileChange:
    """The change of a file in words: counted lines, the names that changed, and samples of changed lines."""
    names, runs = _Names(), list[list[str]]()
    samples, import_samples = list[str](), list[str]()
    changed = [line for hunk in hunks[_MAX_HUNKS:] for line in hunk.lines]
    left = _MAX_LINES
    for hunk in hunks[:_MAX_HUNKS]:
        outline = symbols.Outline(path)
        outline.read(hunk.above)
        for context, run in _runs(hunk.lines):
            changed += run
            if left <= 0:
                continue
            read = run[:left]
            left -= len(context) + len(run)
            outline.read(context)
            outline = _name_run(path, outline, read, names)
            if sample := _sample(path, read, len(run) - len(read)):
                (import_samples if _is_imports(read) else samples).append(sample)
            runs.append(read)
    samples += import_samples
    return FileChange(
        path=path,
        plus=sum(hunk.plus for hunk in hunks) + sum(line[0] == "+" for line in changed),
        minus=sum(hunk.minus for hunk in hunks) + sum(line[0] == "-" for line in changed),
        phrases=names.phrases() or [_unnamed(path, [line for run in runs for line in run if line[1:].strip()], samples)],
        samples=samples,
    )


def _is_imports(lines: list[str]) -> bool:
    return all(symbols.is_import(line[1:]) for line in lines if line[1:].strip())


def _runs(lines: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    """The runs of changed lines that are not all blank, each with the last of the unchanged lines that stand before it."""
    context, run = list[str](), list[str]()
    for line in [*lines, " "]:
        if line[0] != " ":
            run.append(line)
            continue
        if any(changed[1:].strip() for changed in run):
            yield context[-_LOOK_BACK:], run
            context = []
        run = []
        context.append(line[1:])


def _name_run(path: str, outline: symbols.Outline, run: list[str], names: _Names) -> symbols.Outline:
    """Name what a run defines, or what it stands in; returns the outline behind the run, as the new file has it."""
    sides = {"+": (names.added, outline.branch()), "-": (names.removed, outline.branch())}
    lines = [line for line in run if line[1:].strip()]
    defined = [symbols.defined(path, line[1:]) for line in lines]
    for line, name in zip(lines, defined, strict=True):
        if name is None:
            continue
        side, above = sides[line[0]]
        owner = above.around(symbols.indent(line[1:])) if symbols.is_code(path) else None
        if owner is None or owner not in side:
            side.setdefault(f"{owner}.{name}" if owner and "." not in owner else name, line[1:].strip())
        above.enter(line[1:], name)
    if lines and defined[0] is None:
        name = outline.around(symbols.indent(lines[0][1:])) or symbols.constant(lines[0][1:])
        if name:
            names.touched[name] = None
    return sides["+"][1]


def _unnamed(path: str, lines: list[str], samples: list[str]) -> Phrase:
    """Phrase for changes that stand in nothing with a name: imports, keys, one short line, or just the file."""
    if symbols.is_code(path) and lines and _is_imports(lines):
        return Phrase(_verb(lines), "imports", imports=True)
    keys = list(dict.fromkeys(name for line in lines if (name := symbols.key(path, line[1:]))))
    if keys:
        return Phrase("changed", join_names(keys, 3))
    if len(samples) == 1 and len(samples[0]) <= 60:
        verb = _verb(lines)
        return Phrase(verb, samples[0].removeprefix(f"{verb} ").replace(" → ", " to "))
    return Phrase("changed", short_path(path), whole=True)


def _verb(lines: list[str]) -> Verb:
    verbs: dict[str, Verb] = {"+": "added", "-": "removed"}
    return verbs.get("".join({line[0] for line in lines}), "changed")


def _sample(path: str, run: list[str], unread: int) -> str:
    """The first changed line of a run, before and after; lines that only name what is listed anyway come last."""
    lines = [line for line in run if line[1:].strip()]
    lines = [line for line in lines if not (symbols.defined(path, line[1:]) or symbols.is_import(line[1:]))] or lines
    old = next((line[1:].strip() for line in lines if line[0] == "-"), "")
    new = next((line[1:].strip() for line in lines if line[0] == "+"), "")
    if old and new:
        return f"`{shorten(old, 70)}` → `{shorten(new, 70)}`"
    more = len(lines) - 1 + unread
    rest = f" and {count_noun(more, 'more line')}" if more else ""
    return f"{_verb(lines)} `{shorten(new or old, 70)}`{rest}" if new or old else ""
