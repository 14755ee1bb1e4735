"""Words acts as draft observations: a change set, a failure, a commit, a deed, and what only `verbose` tells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

import msgspec

from cmserver.base.text import join_names, shorten
from cmserver.providers.model import DraftObservation, PriorObservation
from cmserver.reading import symbols
from cmserver.reading.file_changes import merge_by_path, short_path
from cmserver.reading.model import CommandRun, FileChange, OpenEnd, UserRule
from cmserver.reading.text import MAX_TITLE, capitalize, count_noun
from cmserver.tooluse.commands import arguments_of, packages

_MAX_READS = 8
_COMMITTED = re.compile(r"^(?:Output: )?\[(\S+)(?: \([^)\n]*\))? ([0-9a-f]{6,40})\]", re.MULTILINE)
_COMMIT_SIZE = re.compile(r"(?<!\d)(\d{1,9}) files? changed(?:, (\d{1,9}) insertions?\(\+\))?(?:, (\d{1,9}) deletions?\(-\))?")
_COMMIT_TYPES = (
    ("bugfix", re.compile(r"(?:fix|bugfix|hotfix|fixes|fixed|repair)\b", re.IGNORECASE)),
    ("feature", re.compile(r"(?:feat|feature|implement|implements)\b", re.IGNORECASE)),
    ("refactor", re.compile(r"(?:refactor|rename|extract|simplify|clean up|restructure)\b", re.IGNORECASE)),
)
_TRAILER = re.compile(r"(?:co-authored-by|signed-off-by):|🤖", re.IGNORECASE)
_MODULE = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z]\w*\b)")
_ERROR_CLASS = re.compile(r"^(?:[A-Z]\w*(?:Error|Exception|Failure|[a-z][A-Z]\w*): +)?(?:\([\w.]+\) )?(?=\S.{10})")
_CREATED = re.compile(r"^ create mode \d+ (.+)$", re.MULTILINE)
_PUSHED = re.compile(r"^[ \t]*+(?:[*+] *+)?(?:\[new \w+\]|[0-9a-f]+\.\.\.?[0-9a-f]+)\s+(\S+) -> (\S+)", re.MULTILINE)
_SYSTEM_INSTALLERS = {"apt", "apt-get", "brew", "apk", "dnf", "conda"}
_DEV_FLAGS = {"-D", "--save-dev", "--dev", "-d", "--group=dev"}
_DEED_TITLES = {
    "git merge": "Merged",
    "git revert": "Reverted",
    "git tag": "Tagged",
    "git rebase": "Rebased onto",
    "git cherry-pick": "Cherry-picked",
    "alembic upgrade": "Migrated the database to",
    "alembic downgrade": "Took the database back to",
}
_GITHUB_TITLES = {"gh pr create": "Opened pull request", "gh issue create": "Opened issue", "gh release create": "Released"}


class FailedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One failed run; `place` is its position in the batch."""

    tag: str
    place: int
    run: CommandRun


class ChangeStep(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a change set: files changed, or something installed."""

    tag: str
    place: int
    changes: list[FileChange] = []
    install: str = ""


class ChangeSet(msgspec.Struct, kw_only=True):
    """Edits and installs that belong together, and the runs that failed before and passed after them."""

    files_read: list[str]
    steps: list[ChangeStep] = []
    failures: list[FailedRun] = []
    passes: dict[object, CommandRun] = {}
    """By the check; the last run counts."""
    pass_tags: list[str] = []
    repaired_at: int = -1
    """Where in the batch the first failure was seen to be over."""
    earlier: PriorObservation | None = None
    """The failure of an earlier batch that this change set ended."""

    @property
    def paths(self) -> set[str]:
        return {change.path for step in self.steps for change in step.changes}

    @property
    def tags(self) -> list[str]:
        return list(
            dict.fromkeys([*(step.tag for step in self.steps), *(failure.tag for failure in self.failures), *self.pass_tags])
        )

    @property
    def repair(self) -> list[ChangeStep]:
        """What made it pass: the steps between the first failure and the run that passed."""
        if not self.failures:
            return self.steps
        return [step for step in self.steps if self.failures[0].place < step.place < self.repaired_at]

    @property
    def met_failure(self) -> bool:
        return bool(self.failures or self.earlier)

    @property
    def is_fix(self) -> bool:
        """True when it set out from a failure; a failure met on the way of a change does not make it a fix."""
        before = [step for step in self.steps if self.failures and step.place < self.failures[0].place]
        only_tests = all(symbols.is_test(change.path) for step in before for change in step.changes)
        return self.met_failure and only_tests and not any(step.install for step in before)

    def is_proved_by(self, run: CommandRun, failures: Sequence[FailedRun]) -> bool:
        """Whether a pass is about these changes: a check, or a run that failed before the last of them."""
        return bool(self.steps) and self.steps[-1].place > failures[0].place if failures else run.command.is_check

    def add_pass(self, tag: str, place: int, run: CommandRun, failures: list[FailedRun]) -> None:
        if failures and not self.failures:
            self.repaired_at = place
        self.pass_tags.append(tag)
        self.failures += failures
        self.passes[run.result.identity] = run


def draft_change_set(change_set: ChangeSet, max_facts: int) -> DraftObservation:
    """The change; a bugfix when it set out from a run that failed and now passes."""
    changes = merge_by_path(change for step in change_set.steps for change in step.changes)
    title = _steps_title(change_set.steps, MAX_TITLE)
    longer = _steps_title(change_set.steps, 200)
    details = [longer] if change_set.is_fix or longer != title else []
    repair = _repair_sentences(change_set) if change_set.met_failure else ""
    return DraftObservation(
        type="bugfix" if change_set.is_fix else "change",
        title=_fix_title(change_set) if change_set.is_fix else title,
        subtitle=_sentence([*details, _size(changes), *map(_pass_text, _last_passes([change_set]))]),
        narrative=repair or None,
        facts=_change_facts([change_set], [], max_facts),
        concepts=_change_concepts(met_failure=change_set.met_failure),
        files_read=_files_read([change_set]),
        files_modified=list(changes),
        events=change_set.tags,
        closes=[change_set.earlier.number] if change_set.earlier else [],
    )


def draft_failure(failures: list[FailedRun], max_facts: int) -> DraftObservation:
    """Runs of one command that failed and have not passed since, told by the last of them."""
    command, outcome = failures[-1].run.command, failures[-1].run.outcome
    first = failures[0].run.outcome
    exit_code = f"exit code {outcome.exit_code}" if outcome.exit_code is not None else ""
    where = f" in {shorten(failures[-1].run.result.folder or '', 60)}" if failures[-1].run.result.folder else ""
    facts = [f"Command: `{command.text}`{where}" + _in_brackets("; ".join(filter(None, [exit_code, outcome.counts])))]
    facts += [f"Failing: {join_names(outcome.failing_tests, 6)}"] if outcome.failing_tests else []
    facts += [f"Error: {outcome.error}"] if outcome.error and outcome.error != exit_code else []
    facts += [f"At: {outcome.place}"] if outcome.place else []
    if first.counts and first.counts != outcome.counts:
        facts.append(f"Before that: {first.counts}")
    elif first.error != outcome.error:
        facts.append(f"Before that: {first.error}")
    names, error = outcome.failing_tests, _MODULE.sub("", outcome.error)
    failure = f"{names[0]} fails" if len(names) == 1 else f"`{command.text}` failed"
    if len(names) > 1:
        failure = f"{len(names)} tests fail ({join_names(names, 1)})"
    if len(failure) + len(error) + 2 > MAX_TITLE:
        error = _ERROR_CLASS.sub("", error)  # the message says more than its class
    heads = (f"{failure}: ", f"{command.main.label} failed: ", "") if command.is_check else (f"{failure}: ",)
    title = next((head + error for head in heads if len(head + error) <= MAX_TITLE), heads[0] + error)
    return DraftObservation(
        type="discovery",
        title=shorten(title, MAX_TITLE),
        subtitle=f"{outcome.counts}." if outcome.counts else None,
        facts=facts[:max_facts],
        concepts=["gotcha"],
        events=[failure.tag for failure in failures],
        state="open",
        anchors=[*outcome.failing_tests[:6], *([outcome.place.rsplit(":", 1)[0]] if outcome.place else [])],
    )


def draft_flaky_test(
    tag: str, run: CommandRun, failures: list[FailedRun], files_read: list[str], max_facts: int
) -> DraftObservation:
    """A test that failed and passes without a change between; `tag` is the event of the run that passes."""
    draft = draft_failure(failures, max_facts)
    names = join_names(failures[0].run.outcome.failing_tests, 2)
    draft.title = shorten(f"Passes on a second run without a change: {names}", MAX_TITLE)
    draft.state = None
    draft.facts = [*draft.facts[: max_facts - 1], _pass_fact(run)]
    draft.files_read = list(dict.fromkeys(files_read))[:_MAX_READS]
    draft.events.append(tag)
    return draft


def draft_recovery(tag: str, run: CommandRun, earlier: PriorObservation, recorded: Sequence[PriorObservation]) -> DraftObservation:
    """A run that passes, after a failure that an earlier batch recorded; what was changed between is named."""
    between = [line for line in recorded if line.number > earlier.number and line.files_modified]
    steps = join_names([f"#{line.number} {line.title}" for line in between[-3:]], 3)
    narrative = f"It had failed: {earlier.title} (#{earlier.number})."
    return DraftObservation(
        type="bugfix" if between else "discovery",
        title=shorten(f"Fixed {_earlier_failure(earlier)}: {_pass_text(run)} again", MAX_TITLE),
        narrative=f"{narrative} Changed since: {steps}." if steps else narrative,
        facts=[_pass_fact(run)],
        concepts=["problem-solution"],
        files_modified=list(dict.fromkeys(path for line in between for path in line.files_modified)),
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
    steps = [step for change_set in change_sets for step in change_set.steps]
    met = [change_set for change_set in change_sets if change_set.met_failure]
    attempts = [f"A first attempt to commit failed: {failure.run.outcome.error}" for failure in failures[:1]]
    changed = list(dict.fromkeys(change.path for step in steps for change in step.changes))
    kind = next((name for name, pattern in _COMMIT_TYPES if pattern.match(subject)), "")
    return DraftObservation(
        type=kind or ("bugfix" if any(change_set.is_fix for change_set in change_sets) else "change"),
        title=shorten(subject, MAX_TITLE),
        subtitle=_sentence([_steps_title(steps, 200)]) if steps else None,
        narrative="\n\n".join(filter(None, [body, *map(_repair_sentences, met)])) or None,
        facts=_change_facts(change_sets, [*_commit_facts(run), *attempts], max_facts),
        concepts=_change_concepts(met_failure=bool(met)),
        files_read=_files_read(change_sets),
        files_modified=_committed_files(run, changed, recorded),
        events=[*(tag for change_set in change_sets for tag in change_set.tags), *(failure.tag for failure in failures), tag],
        closes=[change_set.earlier.number for change_set in met if change_set.earlier],
    )


def add_push(commit: DraftObservation, tag: str, run: CommandRun, max_facts: int) -> None:
    """A push right after a commit is a fact of the commit."""
    commit.events.append(tag)
    commit.facts = [*commit.facts[: max_facts - 1], _push_text(run)]


def draft_deed(tag: str, run: CommandRun) -> DraftObservation:
    """A command that does something lasting outside the files: a push, a merge, a migration, a deployment."""
    return DraftObservation(
        type="change",
        title=shorten(_deed_title(run) or f"Ran `{run.command.text}`", MAX_TITLE),
        facts=_command_facts(run),
        concepts=["what-changed"],
        events=[tag],
    )


def install_phrase(run: CommandRun) -> str:
    """`added dev dependency hypothesis (uv)`, from the words of an install command."""
    words = run.command.main.words
    names, tool = packages(words), run.command.main.label.split(maxsplit=1)[0]
    listed = f"{join_names(names, 4)} ({tool})"
    if tool in _SYSTEM_INSTALLERS:
        return f"installed {listed}"
    noun = "dependency" if len(names) == 1 else "dependencies"
    return f"added {'dev ' if _DEV_FLAGS & set(words) else ''}{noun} {listed}"


def _steps_title(steps: list[ChangeStep], limit: int) -> str:
    changes = merge_by_path(change for step in steps for change in step.changes)
    return _changes_title(changes.values(), [step.install for step in steps if step.install], limit)


def _changes_title(changes: Iterable[FileChange], installs: list[str], limit: int) -> str:
    """One sentence without a full stop, as detailed as fits: "Added round_money in pricing.py; changed Order.total in model.py"."""
    ordered = sorted(changes, key=lambda change: (_rank(change.path), -len(change.phrases)))
    ordered = [change for change in ordered if not change.only_imports] or ordered
    if not installs and len(ordered) == 1:
        return capitalize(_single_title(ordered[0], limit))
    if installs:
        ordered = [change for change in ordered if not symbols.is_manifest(change.path)]
    bare = [_clause(change, 0) for change in ordered]
    if len(ordered) <= limit:  # else there is no room for a word of each
        full, short = ([_clause(change, max_names) for change in ordered] for max_names in (3, 1))
        mixed = ([*short[:detailed], *bare[detailed:]] for detailed in range(len(ordered), -1, -1))
        for clauses in (full, *mixed):
            title = "; ".join([*installs, *clauses])
            if len(title) <= limit:
                return capitalize(title)
    return capitalize(_join_fitting([*installs, *bare], limit))


def _rank(path: str) -> int:
    return 2 if symbols.is_test(path) else 0 if symbols.is_code(path) else 1


def _single_title(change: FileChange, limit: int) -> str:
    title = _clause(change, 3)
    if detail := _detail(change):
        title = f"{title}: {detail}" if len(title) + len(detail) + 2 <= limit else title
    return next((text for text in (title, _clause(change, 2), _clause(change, 1)) if len(text) <= limit), _clause(change, 0))


def _detail(change: FileChange) -> str:
    """The changed line itself, where the file has one change and one line tells it."""
    if len(change.phrases) != 1 or len(change.samples) != 1 or change.whole:
        return ""
    phrase, sample = change.phrases[0], change.samples[0]
    is_named = "`" in phrase.thing or not sample.endswith("`")
    return "" if is_named or (phrase.verb != "changed" and not change.only_imports) else sample.removeprefix(f"{phrase.verb} ")


def _clause(change: FileChange, max_names: int) -> str:
    """One file's part: `added a, b and changed c in x.py`, naming at most `max_names` things of each verb."""
    if whole := change.whole:
        return f"{whole.verb} {whole if max_names else whole.thing}"
    if max_names == 0:
        return f"changed {short_path(change.path)}"
    phrases = [phrase for phrase in change.phrases if not phrase.imports] or change.phrases
    acts = [
        f"{verb} {join_names([phrase.thing for phrase in same_verb], max_names)}"
        for verb, same_verb in groupby(phrases, key=lambda phrase: phrase.verb)
    ]
    listed = f"{acts[0]} and more" if max_names == 1 and len(acts) > 1 else join_names(acts, len(acts))
    return f"{listed} in {short_path(change.path)}"


def _join_fitting(clauses: list[str], limit: int) -> str:
    for shown in range(min(len(clauses) - 1, limit), 0, -1):
        text = f"{'; '.join(clauses[:shown])}; {count_noun(len(clauses) - shown, 'more file')}"
        if len(text) <= limit:
            return text
    return shorten(clauses[0], limit)


def _size(changes: dict[str, FileChange]) -> str:
    plus, minus = sum(change.plus for change in changes.values()), sum(change.minus for change in changes.values())
    return f"{count_noun(len(changes), 'file')}, +{plus}/-{minus} lines" if plus or minus else ""


def _change_concepts(*, met_failure: bool) -> list[str]:
    return ["problem-solution", "what-changed"] if met_failure else ["what-changed"]


def _change_facts(change_sets: list[ChangeSet], first: list[str], max_facts: int) -> list[str]:
    files = merge_by_path(change for change_set in change_sets for step in change_set.steps for change in step.changes)
    failures = [failure.run for change_set in change_sets for failure in change_set.failures][:1]
    failed = [f"Failed before: `{run.command.text}`: {run.outcome.error}" for run in failures]
    failed += [f"Failing: {join_names(run.outcome.failing_tests, 6)}" for run in failures if run.outcome.failing_tests]
    proofs = [_pass_fact(run) for run in _last_passes(change_sets)][-3:]
    room = max(1, max_facts - len(first) - len(failed) - len(proofs))
    return [*first, *[change.fact() for change in list(files.values())[:room]], *failed, *proofs]


def _files_read(change_sets: list[ChangeSet]) -> list[str]:
    return list(dict.fromkeys(path for change_set in change_sets for path in change_set.files_read))[:_MAX_READS]


def _fix_title(change_set: ChangeSet) -> str:
    failure = change_set.failures[0].run.outcome.failure if change_set.failures else _earlier_failure(change_set.earlier)
    head = f"Fixed {failure}: "
    repair = _steps_title(change_set.repair, MAX_TITLE - len(head))
    return shorten(head + repair[:1].lower() + repair[1:], MAX_TITLE)


def _earlier_failure(earlier: PriorObservation | None) -> str:
    """What a recorded failure was about."""
    if earlier is None:
        return ""
    failures = (result.failure for result in earlier.commands if not result.passed)
    return shorten(next(failures, "") or earlier.title, 50)


def _repair_sentences(change_set: ChangeSet) -> str:
    if change_set.failures:
        run = change_set.failures[0].run
        before = f"`{run.command.text}` failed with: {run.outcome.error}"
    else:
        before = f"#{change_set.earlier.number}: {change_set.earlier.title}" if change_set.earlier else ""
    passes = join_names([_pass_text(run) for run in _last_passes([change_set])], 3)
    return f"{before.rstrip('.')}. Then: {_steps_title(change_set.repair, 200)}. Now {passes}."


def _last_passes(change_sets: list[ChangeSet]) -> list[CommandRun]:
    """The last passing run of each kind."""
    return list({run.command.main.label: run for change_set in change_sets for run in change_set.passes.values()}.values())


def _pass_text(run: CommandRun) -> str:
    name, counts = run.command.main.label if run.command.is_check else f"`{run.command.text}`", run.outcome.counts
    if run.outcome.proof == "report":
        return f"{name} reports {counts or 'no failure'}"
    return f"{name} passes" + (f" ({counts})" if re.match(r"\d", counts) else "")


def _pass_fact(run: CommandRun) -> str:
    return f"{'Passes' if run.outcome.proof == 'exit' else 'Reports'}: `{run.command.text}`{_in_brackets(run.outcome.counts)}"


def _command_facts(run: CommandRun) -> list[str]:
    answer = [line for line in run.outcome.output.splitlines() if line.strip()][-1:]
    return [f"Command: `{run.command.text}`", *(f"Answer: {shorten(line, 160)}" for line in answer)]


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _sentence(parts: list[str]) -> str | None:
    text = "; ".join(filter(None, parts))
    return f"{text}." if text else None


def _commit_message(run: CommandRun) -> tuple[str, str]:
    """Subject and body of a commit, from its words, its here-document, or what git answered."""
    words = run.command.main.words
    messages = [value for flag, value in pairwise([*words, ""]) if re.fullmatch(r"-[a-zA-Z]*m|--message", flag)]
    messages += [word.partition("=")[2] for word in words if word.startswith("--message=")]
    text = "\n\n".join(messages)
    if not text or "$(" in text:
        text = "".join(run.command.heredocs[:1])
    subject, *body = [line for line in map(str.strip, text.splitlines()) if not _TRAILER.match(line)] or [""]
    answered = next((line.partition("] ")[2] for line in run.outcome.output.splitlines() if _COMMITTED.match(line)), "")
    return subject or answered or "Committed", shorten(" ".join(body).strip(), 800)


def _commit_facts(run: CommandRun) -> list[str]:
    commit, size = _COMMITTED.search(run.outcome.output), _COMMIT_SIZE.search(run.outcome.output)
    text = f"Commit {commit[2]} on {commit[1]}" if commit else "Committed"
    if size:
        return [f"{text} ({count_noun(int(size[1]), 'file')}, +{size[2] or 0}/-{size[3] or 0})"]
    return [text] if commit else []


def _committed_files(run: CommandRun, changed: list[str], recorded: Sequence[PriorObservation]) -> list[str]:
    """The files of this batch and those that git names; with those of earlier batches when git counts as many."""
    added = [word for simple in run.command.commands if simple.label == "git add" for word in simple.words[1:]]
    added = [run.folder.relative(word) for word in added if re.search(r"\.\w+$", word) and "*" not in word]
    named = [*changed, *_CREATED.findall(run.outcome.output), *added]
    uncommitted = list[str]()
    for line in recorded:
        is_commit = any(result.kind == "commit" and result.passed for result in line.commands)
        uncommitted = [] if is_commit else [*uncommitted, *line.files_modified]
    size = _COMMIT_SIZE.search(run.outcome.output)
    paths = list(dict.fromkeys([*uncommitted, *named]))
    return paths if size and int(size[1]) == len(paths) else list(dict.fromkeys(named))


def _push_text(run: CommandRun) -> str:
    match = _PUSHED.search(run.outcome.output)
    named = arguments_of(run.command.main.words[1:])
    branch = match[2] if match else "".join(named[1:2])
    if not match and not run.is_proved:
        return f"Ran `{run.command.text}`"
    return f"Pushed {branch or 'the branch'} to {named[0] if named else 'its remote'}"


def _deed_title(run: CommandRun) -> str:
    """The title of a command with an effect outside, such as a push or a release; "" when there is no sentence for it."""
    label, words = run.command.main.label, run.command.main.words
    if label == "git push":
        return _push_text(run)
    if not run.is_proved:
        return ""
    if label in _GITHUB_TITLES:
        flags = dict(pairwise(words))
        return f'{_GITHUB_TITLES[label]} "{flags.get("--title") or flags.get("-t") or "".join(words[3:4])}"'
    names = arguments_of(words[1:])
    return f"{_DEED_TITLES[label]} {names[0]}" if label in _DEED_TITLES and names else ""
