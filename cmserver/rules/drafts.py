"""Words acts as draft observations: a change set, a failure, a commit, a deed, and what a person or the agent said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from cmserver.base.text import join_names, shorten
from cmserver.models.providers.model import DraftObservation, PriorObservation
from cmserver.reading.file_changes import merge_by_path
from cmserver.reading.model import CommandRun, FileChange, OpenEnd, UserRule
from cmserver.reading.text import MAX_TITLE, capitalize, count_noun
from cmserver.reading.work_tree import find_commit
from cmserver.tooluse.commands import packages

_MAX_READS = 8
_COMMIT_TYPES = (
    ("bugfix", re.compile(r"(?:fix|bugfix|hotfix|fixes|fixed|repair)\b", re.IGNORECASE)),
    ("feature", re.compile(r"(?:feat|feature|implement|implements)\b", re.IGNORECASE)),
    ("refactor", re.compile(r"(?:refactor|rename|extract|simplify|clean up|restructure)\b", re.IGNORECASE)),
)
_TRAILER = re.compile(r"(?:co-authored-by|signed-off-by):|🤖", re.IGNORECASE)
_MODULE = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z]\w*\b)")
_ERROR_CLASS = re.compile(r"^(?:[A-Z]\w*(?:Error|Exception|Failure|[a-z][A-Z]\w*): +)?(?:\([\w.]+\) )?(?=\S.{10})")
_ANSWERED = re.compile(r"^(?:Output: )?\[[^\]\n]{1,200}\] (.+)", re.MULTILINE)
_COMMIT_SIZE = re.compile(r"(?<!\d)(\d{1,9}) files? changed")
_SYSTEM_INSTALLERS = {"apt", "apt-get", "brew", "apk", "dnf", "conda"}
_CREATED = re.compile(r"^ create mode \d+ (.+)$", re.MULTILINE)


class FailedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One failed run; `place` is its position in the batch."""

    tag: str
    place: int
    run: CommandRun


class ChangeSet(msgspec.Struct, kw_only=True):
    """Edits and installs that belong together, and the runs that failed before and passed after them."""

    files_read: list[str]
    tags: list[str] = []
    places: list[int] = []
    """Where in the batch something was changed or installed."""
    changes: list[FileChange] = []
    installs: list[str] = []
    failures: list[FailedRun] = []
    passes: list[CommandRun] = []
    earlier: PriorObservation | None = None
    """The failure of an earlier batch that this change set ended."""

    @property
    def paths(self) -> set[str]:
        return {change.path for change in self.changes}

    @property
    def is_fix(self) -> bool:
        """True when it set out from a failure; a failure met on the way of a change does not make it a fix."""
        return bool(self.earlier or (self.failures and self.failures[0].place < self.places[0]))

    def add(self, tag: str, place: int, changes: Sequence[FileChange] = (), install: str = "") -> None:
        """Take an event that changed files, or installed something."""
        self.tags.append(tag)
        self.places.append(place)
        self.changes += changes
        self.installs += [install] if install else []

    def is_proved_by(self, run: CommandRun, failures: Sequence[FailedRun]) -> bool:
        """Whether a pass is about these changes: a check, or a run that failed before the last of them."""
        return self.places[-1] > failures[0].place if failures else run.command.is_check

    def add_pass(self, tag: str, run: CommandRun, failures: Sequence[FailedRun]) -> None:
        self.tags += [*(failure.tag for failure in failures), tag]
        self.failures += failures
        self.passes.append(run)


def draft_change_set(change_set: ChangeSet, max_facts: int) -> DraftObservation:
    """The change; a bugfix when it set out from a run that failed and now passes."""
    head = f"Fixed {_what_failed(change_set)}: " if change_set.is_fix else ""
    title = _changes_title(change_set.changes, change_set.installs, MAX_TITLE - len(head))
    return DraftObservation(
        type="bugfix" if change_set.is_fix else "change",
        title=shorten(head + (title[:1].lower() + title[1:] if head else title), MAX_TITLE),
        facts=_change_facts([change_set], [], max_facts),
        concepts=_change_concepts([change_set]),
        files_read=_files_read([change_set]),
        files_modified=list(dict.fromkeys(change.path for change in change_set.changes)),
        events=list(dict.fromkeys(change_set.tags)),
        closes=[change_set.earlier.number] if change_set.earlier else [],
    )


def draft_failure(failures: list[FailedRun], max_facts: int) -> DraftObservation:
    """Runs of one command that failed and have not passed since, told by the last of them."""
    run = failures[-1].run
    command, outcome, folder = run.command, run.outcome, run.result.folder
    exit_code = f"exit code {outcome.exit_code}" if outcome.exit_code is not None else ""
    where = f" in {shorten(folder, 60)}" if folder else ""
    facts = [f"Command: `{command.text}`{where}" + _in_brackets("; ".join(filter(None, [exit_code, outcome.counts])))]
    facts += [f"Failing: {join_names(outcome.failing_tests, 6)}"] if outcome.failing_tests else []
    facts += [f"Error: {outcome.error}"] if outcome.error and outcome.error != exit_code else []
    facts += [f"At: {outcome.place}"] if outcome.place else []
    names = outcome.failing_tests
    failure = f"{names[0]} fails" if len(names) == 1 else f"`{command.text}` failed"
    if len(names) > 1:
        failure = f"{len(names)} tests fail ({join_names(names, 1)})"
    error = _MODULE.sub("", outcome.error)
    if len(failure) + len(error) + 2 > MAX_TITLE:
        error = _ERROR_CLASS.sub("", error)  # the message says more than its class
    heads = (f"{failure}: ", f"{command.main.label} failed: ", "") if command.is_check else (f"{failure}: ",)
    title = next((head + error for head in heads if len(head + error) <= MAX_TITLE), heads[0] + error)
    return DraftObservation(
        type="discovery",
        title=shorten(title, MAX_TITLE),
        facts=facts[:max_facts],
        concepts=["gotcha"],
        events=[failure.tag for failure in failures],
        state="open",
        anchors=[*names[:6], *([outcome.place.rsplit(":", 1)[0]] if outcome.place else [])],
    )


def draft_recovery(tag: str, run: CommandRun, earlier: PriorObservation, recorded: Sequence[PriorObservation]) -> DraftObservation:
    """A run that passes, after a failure that an earlier batch recorded, with the files that were changed between."""
    files = [path for line in recorded if line.number > earlier.number for path in line.files_modified]
    return DraftObservation(
        type="bugfix" if files else "discovery",
        title=shorten(f"Passes again: {_earlier_failure(earlier)}", MAX_TITLE),
        facts=[_pass_fact(run)],
        concepts=["problem-solution"],
        files_modified=list(dict.fromkeys(files)),
        events=[tag],
        closes=[earlier.number],
    )


def draft_rule(tag: str, rule: UserRule) -> DraftObservation:
    """What the user laid down for good, in their own words."""
    return DraftObservation(
        type="decision",
        title=rule.title,
        narrative=f'The user: "{rule.text}"',
        concepts=["pattern"],
        events=[tag],
        quote=rule.text,
    )


def draft_report(tag: str, text: str, closes: list[int]) -> DraftObservation:
    """What the user says of open ends by their numbers, in their own words: that they are over."""
    return DraftObservation(
        type="change",
        title=shorten(capitalize(text), MAX_TITLE),
        narrative=f'The user: "{text}"',
        concepts=["what-changed"],
        events=[tag],
        quote=text,
        closes=closes,
    )


def draft_open_end(tag: str, end: OpenEnd) -> DraftObservation:
    """Something not done yet, in the agent's words."""
    return DraftObservation(
        type="discovery",
        title=end.title,
        narrative=end.text if end.text.rstrip(".") != end.title else None,
        concepts=["gotcha"],
        events=[tag],
        state="open",
        quote=end.text,
    )


def draft_commit(
    tag: str,
    run: CommandRun,
    change_sets: list[ChangeSet],
    failures: list[FailedRun],
    recorded: Sequence[PriorObservation],
    max_facts: int,
) -> DraftObservation:
    """A commit and everything in the batch that it sums up. `failures` are attempts to commit that failed."""
    subject, body = _commit_message(run)
    commit = find_commit(run.outcome.output)
    first = [f"Commit {commit}"] if commit else []
    first += [f"A first attempt to commit failed: {failure.run.outcome.error}" for failure in failures[:1]]
    kind = next((name for name, pattern in _COMMIT_TYPES if pattern.match(subject)), "")
    return DraftObservation(
        type=kind or ("bugfix" if any(change_set.is_fix for change_set in change_sets) else "change"),
        title=shorten(subject, MAX_TITLE),
        narrative=body or None,
        facts=_change_facts(change_sets, first, max_facts),
        concepts=_change_concepts(change_sets),
        files_read=_files_read(change_sets),
        files_modified=_committed_files(run, change_sets, recorded),
        events=list(dict.fromkeys([*(tag for it in change_sets for tag in it.tags), *(failure.tag for failure in failures), tag])),
        closes=[change_set.earlier.number for change_set in change_sets if change_set.earlier],
    )


def draft_deed(tag: str, run: CommandRun) -> DraftObservation:
    """A command that does something lasting outside the files: a push, a merge, a migration, a deployment."""
    answer = [line for line in run.outcome.output.splitlines() if line.strip()][-1:]
    return DraftObservation(
        type="change",
        title=shorten(f"Ran `{run.command.text}`", MAX_TITLE),
        facts=[f"Command: `{run.command.text}`", *(f"Answer: {shorten(line, 160)}" for line in answer)],
        concepts=["what-changed"],
        events=[tag],
    )


def install_phrase(run: CommandRun) -> str:
    """`added dependency hypothesis (uv)`, from the words of an install command."""
    names, tool = packages(run.command.main.words), run.command.main.label.split(maxsplit=1)[0]
    verb = "installed" if tool in _SYSTEM_INSTALLERS else "added dependency" if len(names) == 1 else "added dependencies"
    return f"{verb} {join_names(names, 4)} ({tool})"


def _changes_title(changes: Iterable[FileChange], installs: Sequence[str], limit: int) -> str:
    """One sentence without a full stop, as detailed as fits: "Added pricing.py (round_money); changed total in model.py"."""
    merged = list(merge_by_path(changes).values())
    title, clauses = "", list[str]()
    if len(merged) == 1 and not installs and merged[0].verb == "changed" and merged[0].sample:
        title = f"{_clause(merged[0], 3)}: {merged[0].sample}"
    for max_names in (3, 1, 0):
        if title and len(title) <= limit:
            return capitalize(title)
        clauses = [*installs, *(_clause(change, max_names) for change in merged[:limit])]
        title = "; ".join(clauses)
    shown = len(clauses)
    while shown > 1 and len(title) > limit:
        shown -= 1
        title = f"{'; '.join(clauses[:shown])}; {count_noun(len(installs) + len(merged) - shown, 'more file')}"
    return capitalize(shorten(title, limit))


def _clause(change: FileChange, max_names: int) -> str:
    """One file's part: `changed a and b in x.py`, `added y.py (c)`."""
    names = join_names(change.names, max_names) if max_names else ""
    if change.verb == "changed":
        return f"changed {names} in {_short_path(change.path)}" if names else f"changed {_short_path(change.path)}"
    if change.old_path:
        return f"moved {_short_path(change.old_path)} to {_short_path(change.path)}"
    return f"{change.verb} {_short_path(change.path)}{_in_brackets(names)}"


def _short_path(path: str) -> str:
    return path if len(path) <= 32 else path.replace("\\", "/").rsplit("/", 1)[-1]


def _change_concepts(change_sets: Sequence[ChangeSet]) -> list[str]:
    met_failure = any(change_set.failures or change_set.earlier for change_set in change_sets)
    return ["problem-solution", "what-changed"] if met_failure else ["what-changed"]


def _change_facts(change_sets: Sequence[ChangeSet], first: list[str], max_facts: int) -> list[str]:
    files = merge_by_path(change for change_set in change_sets for change in change_set.changes)
    failures = [failure.run for change_set in change_sets for failure in change_set.failures][:1]
    failed = [f"Failed before: `{run.command.text}`: {run.outcome.error}" for run in failures]
    failed += [f"Failing: {join_names(run.outcome.failing_tests, 6)}" for run in failures if run.outcome.failing_tests]
    passes = {run.command.main.label: _pass_fact(run) for change_set in change_sets for run in change_set.passes}
    proofs = [*passes.values()][-3:]
    room = max(1, max_facts - len(first) - len(failed) - len(proofs))
    return [*first, *[change.fact() for change in list(files.values())[:room]], *failed, *proofs]


def _files_read(change_sets: Sequence[ChangeSet]) -> list[str]:
    return list(dict.fromkeys(path for change_set in change_sets for path in change_set.files_read))[:_MAX_READS]


def _what_failed(change_set: ChangeSet) -> str:
    return change_set.failures[0].run.outcome.failure if change_set.failures else _earlier_failure(change_set.earlier)


def _earlier_failure(earlier: PriorObservation | None) -> str:
    """What a recorded failure was about."""
    if earlier is None:
        return ""
    failures = (result.failure for result in earlier.commands if not result.passed)
    return shorten(next(failures, "") or earlier.title, 50)


def _pass_fact(run: CommandRun) -> str:
    return f"{'Passes' if run.outcome.proof == 'exit' else 'Reports'}: `{run.command.text}`{_in_brackets(run.outcome.counts)}"


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _commit_message(run: CommandRun) -> tuple[str, str]:
    """Subject and body of a commit, from its words, its here-document, or what git answered."""
    words = run.command.main.words
    messages = [value for flag, value in pairwise([*words, ""]) if re.fullmatch(r"-[a-zA-Z]*m|--message", flag)]
    messages += [word.partition("=")[2] for word in words if word.startswith("--message=")]
    text = "\n\n".join(messages)
    if not text or "$(" in text:
        text = "".join(run.command.heredocs[:1])
    subject, *body = [line for line in map(str.strip, text.splitlines()) if not _TRAILER.match(line)] or [""]
    answered = _ANSWERED.search(run.outcome.output)
    return subject or (answered[1] if answered else "Committed"), shorten(" ".join(body).strip(), 800)


def _committed_files(run: CommandRun, change_sets: list[ChangeSet], recorded: Sequence[PriorObservation]) -> list[str]:
    """The files of this batch and those that git names; with those of earlier batches when git counts as many."""
    changed = [change.path for change_set in change_sets for change in change_set.changes]
    added = [word for simple in run.command.commands if simple.label == "git add" for word in simple.words[1:]]
    added = [run.folder.relative(word) for word in added if re.search(r"\.\w+$", word) and "*" not in word]
    uncommitted = list[str]()
    for line in recorded:
        is_commit = any(result.kind == "commit" and result.passed for result in line.commands)
        uncommitted = [] if is_commit else [*uncommitted, *line.files_modified]
    named = [*changed, *_CREATED.findall(run.outcome.output), *added]
    size, paths = _COMMIT_SIZE.search(run.outcome.output), list(dict.fromkeys([*uncommitted, *named]))
    return paths if size and int(size[1]) == len(paths) else list(dict.fromkeys(named))
