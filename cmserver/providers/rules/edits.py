"""What an edit changed: from the inputs and patches of editing tools to one `FileChange` for each file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, cast

import msgspec

from cmserver.providers.rules import symbols
from cmserver.providers.rules.phrases.manner import counted, words
from cmserver.providers.rules.text import array, field, listed, number, record, relative, shorten

_PATCH_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_MAX_CREATED_NAMES = 3
_MAX_DIFFED = 200_000
"""Lines before and after of one event's edits that are compared; the edits behind them count with all their lines."""
_MAX_HUNKS = 100
_MAX_LINES = 5_000
"""Hunks and lines of one file in one event that are read for names and samples; those behind them are only counted."""
_LOOK_BACK = 600

Verb = Literal["added", "changed", "removed", "renamed", "moved", "rewrote", "wrote"]


def worded(verb: Verb) -> str:
    """The verb in the language of the answer."""
    return cast("str", getattr(words(), verb))


class Phrase(msgspec.Struct, frozen=True):
    """What was done to what: ("added", "round_money"). `whole` when the thing is the file itself."""

    verb: Verb
    thing: str
    whole: bool = False
    inside: list[str] = []
    """What a file added as a whole defines."""
    imports: bool = False
    """It is about nothing but imports."""

    @property
    def bare(self) -> str:
        """The thing without its verb where the verb is no news."""
        return f"{words().renamed} {self.thing}" if self.verb == "renamed" else self.thing

    def __str__(self) -> str:
        return f"{self.thing} ({listed(self.inside, _MAX_CREATED_NAMES)})" if self.inside else self.thing


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to one file."""

    path: str
    plus: int = 0
    minus: int = 0
    phrases: list[Phrase] = []
    samples: list[str] = []
    """Changed lines worth showing, the most telling first: "`old` → `new`", "added `new`", "removed `old`"."""

    @property
    def whole(self) -> Phrase | None:
        return next((phrase for phrase in self.phrases if phrase.whole), None)

    @property
    def minor(self) -> bool:
        """Only imports: nothing a title should lead with."""
        return all(phrase.imports for phrase in self.phrases)

    def fact(self) -> str:
        head = f"{self.path} (+{self.plus}/-{self.minus})" if self.plus or self.minus else self.path
        told = self.whole.inside if self.whole else [phrase.bare for phrase in self.phrases if "`" not in phrase.thing]
        tail = "; ".join(filter(None, [listed(told, 4), *self.samples[:1]]))
        return shorten(f"{head}: {tail}" if tail else head, 220)


def together(changes: Iterable[FileChange]) -> dict[str, FileChange]:
    """One change for each file, by path, in the order the files were first touched."""
    by_path: dict[str, list[FileChange]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    return {path: _joined(every) if len(every) > 1 else every[0] for path, every in by_path.items()}


def _joined(changes: list[FileChange]) -> FileChange:
    """The changes of one file as one: what comes after a change of the whole file is part of it."""
    things: dict[str, Phrase] = {}
    minor, telling = list[str](), list[str]()
    whole = False
    for change in changes:
        if whole:
            break
        for phrase in change.phrases:
            things.setdefault(phrase.thing, phrase)
        whole = change.whole is not None
        if all(phrase.imports for phrase in things.values()):
            minor = [*change.samples, *minor]
        else:
            telling += change.samples
    phrases = [phrase for phrase in things.values() if not phrase.imports] or list(things.values())
    plus, minus = sum(change.plus for change in changes), sum(change.minus for change in changes)
    return FileChange(path=changes[0].path, plus=plus, minus=minus, phrases=phrases, samples=[*telling, *minor])


class Hunk(msgspec.Struct):
    """A run of lines as in a unified diff (' ', '+', '-'), with what stands above it in the file."""

    above: list[str]
    lines: list[str]
    plus: int = 0
    """Lines that are counted only."""
    minus: int = 0


def changes_of(tool_input: object, tool_response: object, root: str | None) -> list[FileChange]:
    """Every file an editing tool touched; empty when the edit had no effect or names no file."""
    given, answer = record(tool_input), record(tool_response)
    patch = field(given, "patch", "input", "diff", "command") or (tool_input if isinstance(tool_input, str) else "")
    if "*** Begin Patch" in patch:
        return _from_patch_text(patch, root)
    path = named_file(given, answer, root)
    if not path:
        return []
    if "new_source" in given:
        return [_notebook(path, given)]
    hunks = _hunks(given, answer)
    if hunks:
        change = _describe(path, hunks)
        return [change] if change.plus or change.minus else []
    return _whole_file(path, given, answer)


def named_file(tool_input: object, tool_response: object, root: str | None) -> str:
    """The file that an editing tool was given; an empty string when it names none."""
    given = record(tool_input)
    path = field(given, "file_path", "notebook_path", "path", "absolute_path", "filePath") or field(
        record(tool_response), "filePath"
    )
    return relative(path, root)


def written(path: str, content: str, *, created: bool) -> FileChange:
    """A file written as a whole."""
    lines = content.splitlines()
    top = [name for line in lines[:_MAX_LINES] if symbols.indent(line) == 0 and (name := symbols.defined(path, line))]
    place = short_path(path)
    if not created:
        return FileChange(path=path, plus=len(lines), phrases=[Phrase("rewrote", place, whole=True)])
    shown = top[:1] if symbols.suffix(path) in {".md", ".mdx"} else top
    inside = shown if symbols.suffix(path) != ".toml" else []
    first = next((line.strip() for line in lines if line.strip()), "")
    samples = [] if top or not first else [f"`{shorten(first, 70)}`"]
    return FileChange(path=path, plus=len(lines), phrases=[Phrase("added", place, whole=True, inside=inside)], samples=samples)


def written_by_shell(path: str, content: str, *, appends: bool) -> FileChange:
    """A file written by redirection: whether it was there before is not known."""
    if appends:
        return _describe(path, [Hunk([], ["+" + line for line in content.splitlines()])])
    change = written(path, content, created=True)
    phrases = [msgspec.structs.replace(phrase, verb="wrote") for phrase in change.phrases]
    return msgspec.structs.replace(change, phrases=phrases)


def rewritten(path: str, how: str) -> FileChange:
    """A file changed by a program: how many lines is not known."""
    return FileChange(path=path, phrases=[Phrase("changed", short_path(path), whole=True)], samples=[how])


def moved(old: str, new: str) -> FileChange:
    return FileChange(path=new, phrases=[Phrase("moved", f"{short_path(old)} {words().moved_to} {short_path(new)}", whole=True)])


def removed(path: str) -> FileChange:
    return FileChange(path=path, phrases=[Phrase("removed", short_path(path), whole=True)])


def short_path(path: str) -> str:
    return path if len(path) <= 32 else path.replace("\\", "/").rsplit("/", 1)[-1]


def _notebook(path: str, given: dict[str, object]) -> FileChange:
    verbs: dict[str, Verb] = {"insert": "added", "delete": "removed"}
    verb = verbs.get(field(given, "edit_mode"), "changed")
    source = field(given, "new_source")
    first = next((line.strip() for line in source.splitlines() if line.strip()), "")
    samples = [f"`{shorten(first, 70)}`"] if first else []
    return FileChange(path=path, plus=len(source.splitlines()), phrases=[Phrase(verb, words().cell)], samples=samples)


def _whole_file(path: str, given: dict[str, object], answer: dict[str, object]) -> list[FileChange]:
    content = field(given, "content", "file_text", "contents", "text")
    before = field(answer, "originalFile")
    if not content or content == before:
        return []
    if before:
        lines = _trimmed(before.splitlines(), content.splitlines())
        small = len(lines) < len(content.splitlines())
        return [_describe(path, [Hunk([], lines)]) if small else written(path, content, created=False)]
    return [written(path, content, created=field(answer, "type") != "update")]


def _hunks(given: dict[str, object], answer: dict[str, object]) -> list[Hunk]:
    original = field(answer, "originalFile").splitlines()
    hunks: list[Hunk] = []
    for entry in map(record, array(answer.get("structuredPatch"))):
        lines = [line for line in array(entry.get("lines")) if isinstance(line, str) and line[:1] in {" ", "+", "-"}]
        if lines:
            above = _above(original, number(entry.get("oldStart")) - 1, lines) if len(hunks) < _MAX_HUNKS else []
            hunks.append(Hunk(above, lines))
    if hunks:
        return hunks
    pairs = [record(edit) for edit in array(given.get("edits"))] or [given]
    diffed = 0
    for pair in pairs:
        old, new = field(pair, "old_string", "old_str", "oldText"), field(pair, "new_string", "new_str", "newText")
        if old == new:
            continue
        before, after = old.splitlines(), new.splitlines()
        diffed += len(before) + len(after)
        counted_only = Hunk([], [], plus=len(after), minus=len(before))
        hunks.append(counted_only if diffed > _MAX_DIFFED else Hunk([], _trimmed(before, after)))
    return hunks


def _above(original: list[str], start: int, lines: list[str]) -> list[str]:
    """The file above a hunk, unless what was recorded of the file does not fit the hunk (it may be shortened)."""
    first_old = next((line[1:] for line in lines if line[0] != "+"), None)
    if 0 <= start < len(original) and original[start] == first_old:
        return original[max(0, start - _LOOK_BACK) : start]
    return []


def _trimmed(old: list[str], new: list[str]) -> list[str]:
    """A one-hunk diff: what both begin and end with is context."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    before, after = old[head : len(old) - tail], new[head : len(new) - tail]
    context = [" " + line for line in old[:head]]
    return [*context, *("-" + line for line in before), *("+" + line for line in after)]


def _from_patch_text(patch: str, root: str | None) -> list[FileChange]:
    changes: list[FileChange] = []
    pieces = _PATCH_FILE.split(patch)
    for act, name, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        path = relative(name.strip(), root)
        lines = ["  " + line[2:].strip() if line[:2] == "@@" else line for line in body.splitlines()]
        lines = [line for line in lines if line[:1] in {" ", "+", "-"}]
        if act == "Add":
            changes.append(written(path, "\n".join(line[1:] for line in lines), created=True))
        elif act == "Delete":
            changes.append(removed(path))
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
        both = [name for name in self.added if name in self.removed]
        added = [name for name in self.added if name not in self.removed]
        removed = [name for name in self.removed if name not in self.added]
        once = {*added, *removed}
        touched = [name for name in dict.fromkeys([*both, *self.touched]) if name not in once]
        if len(added) == len(removed) == 1 and self._renamed(removed[0], added[0]):
            return [Phrase("renamed", f"{removed[0]} {words().to} {added[0]}"), *_all("changed", touched)]
        return [*_all("added", added), *_all("changed", touched), *_all("removed", removed)]

    def _renamed(self, old: str, new: str) -> bool:
        """True when nothing but the name differs in the defining line."""
        words = old.rpartition(".")[2], new.rpartition(".")[2]
        return self.removed[old].replace(*words, 1) == self.added[new]


def _all(verb: Verb, names: list[str]) -> list[Phrase]:
    return [Phrase(verb, name) for name in names]


def _describe(path: str, hunks: list[Hunk]) -> FileChange:
    names, samples, read = _Names(), list[tuple[bool, str]](), list[list[str]]()
    plus, minus = sum(hunk.plus for hunk in hunks), sum(hunk.minus for hunk in hunks)
    left = _MAX_LINES
    for hunk in hunks[_MAX_HUNKS:]:
        plus += sum(line[0] == "+" for line in hunk.lines)
        minus += sum(line[0] == "-" for line in hunk.lines)
    for hunk in hunks[:_MAX_HUNKS]:
        outline = symbols.Outline(path)
        outline.read(hunk.above)
        for context, run in _runs(hunk.lines):
            plus += sum(line[0] == "+" for line in run)
            minus += sum(line[0] == "-" for line in run)
            if left <= 0:
                continue
            shown = run[:left]
            left -= len(context) + len(run)
            outline.read(context)
            outline = _name_run(path, outline, shown, names)
            if sample := _sample(path, shown, len(run) - len(shown)):
                samples.append((all(symbols.is_import(line[1:]) for line in shown if line[1:].strip()), sample))
            read.append(shown)
    told = [sample for _, sample in sorted(samples, key=lambda one: one[0])]
    return FileChange(path=path, plus=plus, minus=minus, phrases=names.phrases() or _unnamed(path, read, told), samples=told)


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
    """Name what a run defines, or what it stands in. Gives the outline behind the run, as the new file has it."""
    sides = {"+": (names.added, outline.twin()), "-": (names.removed, outline.twin())}
    text = [line for line in run if line[1:].strip()]
    first_is_definition = False
    for place, line in enumerate(text):
        name = symbols.defined(path, line[1:])
        if name is None:
            continue
        first_is_definition = first_is_definition or place == 0
        side, above = sides[line[0]]
        owner = above.around(symbols.indent(line[1:])) if symbols.is_code(path) else None
        if owner is None or owner not in side:
            side.setdefault(f"{owner}.{name}" if owner and "." not in owner else name, line[1:].strip())
        above.enter(line[1:], name)
    if text and not first_is_definition:
        where = outline.around(symbols.indent(text[0][1:]))
        if name := where or symbols.constant(text[0][1:]):
            names.touched[name] = None
    return sides["+"][1]


def _unnamed(path: str, runs: list[list[str]], samples: list[str]) -> list[Phrase]:
    """Phrases for changes that stand in nothing with a name: imports, keys, one short line, or just the file."""
    lines = [line for run in runs for line in run if line[1:].strip()]
    if symbols.is_code(path) and lines and all(symbols.is_import(line[1:]) for line in lines):
        return [Phrase(_verb(lines), words().imports, imports=True)]
    keys = list(dict.fromkeys(name for line in lines if (name := symbols.key(path, line[1:]))))
    if keys:
        return [Phrase("changed", listed(keys, 3))]
    if len(samples) == 1 and len(samples[0]) <= 60:
        verb = _verb(lines)
        return [Phrase(verb, samples[0].removeprefix(f"{worded(verb)} ").replace(" → ", f" {words().to} "))]
    return [Phrase("changed", short_path(path), whole=True)]


def _verb(lines: list[str]) -> Verb:
    signs = {line[0] for line in lines}
    verbs: dict[str, Verb] = {"+": "added", "-": "removed"}
    return verbs.get("".join(signs), "changed")


def _sample(path: str, run: list[str], unread: int) -> str:
    """The first changed line of a run, before and after; lines that only name what is listed anyway come last."""
    lines = [line for line in run if line[1:].strip()]
    lines = [line for line in lines if not _names_only(path, line[1:])] or lines
    old = next((line[1:].strip() for line in lines if line[0] == "-"), "")
    new = next((line[1:].strip() for line in lines if line[0] == "+"), "")
    if old and new:
        return f"`{shorten(old, 70)}` → `{shorten(new, 70)}`"
    more = len(lines) - 1 + unread
    rest = f" {words().and_} {counted(words().more_lines, more)}" if more else ""
    return f"{worded(_verb(lines))} `{shorten(new or old, 70)}`{rest}" if new or old else ""


def _names_only(path: str, line: str) -> bool:
    return symbols.defined(path, line) is not None or symbols.is_import(line)
