"""Wording: a work, a failure, a commit, a deed, each as one draft observation."""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from cmserver.providers.model import DraftObservation, Recorded
from cmserver.providers.rules import symbols, titles
from cmserver.providers.rules.acts import Ran
from cmserver.providers.rules.commands import Command, Sort, packages, read
from cmserver.providers.rules.edits import FileChange, together
from cmserver.providers.rules.outcomes import Outcome
from cmserver.providers.rules.text import MAX_TITLE, counted, listed, relative, shorten

_MAX_FACTS = 8
_MAX_READS = 8
_COMMAND_FACT = re.compile(r"Command: `(.+)`")
_PASSES_FACT = re.compile(r"Passes: `(.+?)`")
_COMMITTED = re.compile(r"^\[(\S+)(?: \([^)\n]*\))? ([0-9a-f]{6,40})\]", re.MULTILINE)
_COMMIT_SIZE = re.compile(r"(?<!\d)(\d{1,9}) files? changed(?:, (\d{1,9}) insertions?\(\+\))?(?:, (\d{1,9}) deletions?\(-\))?")
_COMMIT_TYPES = (
    ("bugfix", re.compile(r"(?:fix|bugfix|hotfix|fixes|fixed|repair)\b", re.IGNORECASE)),
    ("feature", re.compile(r"(?:feat|feature|implement|implements)\b", re.IGNORECASE)),
    ("refactor", re.compile(r"(?:refactor|rename|extract|simplify|clean up|restructure)\b", re.IGNORECASE)),
)
_MODULE = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z]\w*(?:Error|Exception)\b)")
_CREATED = re.compile(r"^ create mode \d+ (.+)$", re.MULTILINE)
_PUSHED = re.compile(r"^[ \t]*+(?:[*+] *+)?(?:\[new \w+\]|[0-9a-f]+\.\.\.?[0-9a-f]+)\s+(\S+) -> (\S+)", re.MULTILINE)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One failed run; `place` is its position in the batch."""

    tag: str
    place: int
    command: Command
    outcome: Outcome


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a work: files changed, or something installed."""

    tag: str
    place: int
    changes: list[FileChange] = []
    install: str = ""


class Work(msgspec.Struct, kw_only=True):
    """A burst of edits and installs that belong together, and the runs that failed before and passed after them."""

    reads: list[str]
    steps: list[Step] = []
    failures: list[Failure] = []
    passes: dict[str, Ran] = {}
    """By the key of the command; the last run counts."""
    pass_tags: list[str] = []
    repaired: int = -1
    """Where in the batch the first failure was seen to be over."""
    earlier: Recorded | None = None
    """The failure of an earlier batch that this work ended."""

    @property
    def paths(self) -> set[str]:
        return {change.path for step in self.steps for change in step.changes}

    @property
    def tags(self) -> list[str]:
        return [*(step.tag for step in self.steps), *(failure.tag for failure in self.failures), *self.pass_tags]

    @property
    def last_edit(self) -> int:
        return self.steps[-1].place if self.steps else -1

    @property
    def repair(self) -> list[Step]:
        """What made it pass: the steps between the first failure and the run that passed."""
        if not self.failures:
            return self.steps
        return [step for step in self.steps if self.failures[0].place < step.place < self.repaired]

    @property
    def fixes(self) -> bool:
        """True when the work set out from a failure; a failure met on the way of a change does not make it a fix."""
        before = [step for step in self.steps if self.failures and step.place < self.failures[0].place]
        only_tests = all(symbols.is_test(change.path) for step in before for change in step.changes)
        return bool(self.failures or self.earlier) and only_tests and not any(step.install for step in before)

    def passed(self, tag: str, place: int, ran: Ran, failures: list[Failure]) -> None:
        if failures and not self.failures:
            self.repaired = place
        self.pass_tags.append(tag)
        self.failures += failures
        self.passes[ran.command.key] = ran


def install_phrase(label: str, words: list[str]) -> str:
    """`added dev dependency hypothesis (uv)`, from the words of an install command."""
    names = packages(words)
    tool = label.split(maxsplit=1)[0]
    if tool in {"apt", "apt-get", "brew", "apk", "dnf", "conda"}:
        return f"installed {listed(names, 4)} ({tool})"
    dev = "dev " if {"-D", "--save-dev", "--dev", "-d"} & set(words) or "--group=dev" in words else ""
    noun = "dependency" if len(names) == 1 else "dependencies"
    return f"added {dev}{noun} {listed(names, 4)} ({tool})"


def of_work(work: Work, request: str | None) -> DraftObservation:
    """The change a burst made; a bugfix when it set out from a run that failed and now passes."""
    changes = together(change for step in work.steps for change in step.changes)
    what = _what(work.steps, MAX_TITLE)
    met = bool(work.failures or work.earlier)
    asked = f'Asked for: "{shorten(request, 200)}"' if request else ""
    return DraftObservation(
        type="bugfix" if work.fixes else "change",
        title=_fixed(work) if work.fixes else what,
        subtitle=_sentence([*_more_than(what, work), _size(changes), *_passes([work])]),
        narrative="\n\n".join(filter(None, [asked, _how_fixed(work) if met else ""])) or None,
        facts=_facts([work]),
        concepts=["problem-solution", "what-changed"] if met else ["what-changed"],
        files_read=_reads([work]),
        files_modified=list(changes),
        events=work.tags,
    )


def _more_than(title: str, work: Work) -> list[str]:
    """The longer wording, where the title had no room for it or tells the fix only."""
    longer = _what(work.steps, 200)
    return [longer] if work.fixes or longer != title else []


def _what(steps: list[Step], limit: int) -> str:
    changes = together(change for step in steps for change in step.changes)
    return titles.of_changes(changes.values(), [step.install for step in steps if step.install], limit)


def _size(changes: dict[str, FileChange]) -> str:
    plus = sum(change.plus for change in changes.values())
    minus = sum(change.minus for change in changes.values())
    return f"{counted(len(changes), 'file')}, +{plus}/-{minus} lines" if plus or minus else ""


def _last_passes(works: list[Work]) -> list[Ran]:
    """The last passing run of each kind."""
    return list({run.command.chief.label: run for work in works for run in work.passes.values()}.values())


def _passes(works: list[Work]) -> list[str]:
    return [_passing(ran) for ran in _last_passes(works)]


def _passing(ran: Ran) -> str:
    known = ran.command.chief.sort in {Sort.TEST, Sort.CHECK}
    counts = ran.outcome.counts
    name = ran.command.chief.label if known else f"`{ran.command.shown}`"
    return f"{name} passes" + (f" ({counts})" if re.match(r"\d", counts) else "")


def _sentence(parts: list[str]) -> str | None:
    told = "; ".join(filter(None, parts))
    return f"{told}." if told else None


def _facts(works: list[Work], *first: str) -> list[str]:
    files = together(change for work in works for step in work.steps for change in step.changes)
    failures = [failure for work in works for failure in work.failures]
    failed = _failed_before(failures[0]) if failures else []
    proofs = [f"Passes: `{run.command.shown}`{_in_brackets(run.outcome.counts)}" for run in _last_passes(works)][-3:]
    room = max(1, _MAX_FACTS - len(first) - len(failed) - len(proofs))
    return [*first, *[change.fact() for change in list(files.values())[:room]], *failed, *proofs]


def _failed_before(failure: Failure) -> list[str]:
    names = failure.outcome.names
    told = f"Failed before: `{failure.command.shown}`: {failure.outcome.error}"
    return [told, *([f"Failing: {listed(names, 6)}"] if names else [])]


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _reads(works: list[Work]) -> list[str]:
    return list(dict.fromkeys(path for work in works for path in work.reads))[:_MAX_READS]


def _fixed(work: Work) -> str:
    subject = _failing_subject(work.failures[0].outcome) if work.failures else _recorded_subject(work.earlier)
    head = f"Fixed {subject}: "
    what = _what(work.repair, MAX_TITLE - len(head))
    return shorten(head + what[:1].lower() + what[1:], MAX_TITLE)


def _failing_subject(outcome: Outcome) -> str:
    if len(outcome.names) == 1:
        return shorten(outcome.names[0], 50)
    return f"{len(outcome.names)} failing tests" if outcome.names else shorten(outcome.error, 50)


def _recorded_subject(earlier: Recorded | None) -> str:
    """What a recorded failure was about: `test_x fails: AssertionError` is about test_x."""
    title = earlier.title if earlier else ""
    subject, found, error = title.partition(" fails: ")
    if found and " " not in subject:
        return subject
    if match := re.match(r"(\d+) tests fail\b", title):
        return f"{match[1]} failing tests"
    return shorten(error or title.partition(" failed: ")[2] or title, 50)


def _how_fixed(work: Work) -> str:
    if work.failures:
        failure = work.failures[0]
        before = f"`{failure.command.shown}` failed with: {failure.outcome.error}"
    else:
        before = f"#{work.earlier.number}: {work.earlier.title}" if work.earlier else ""
    return f"{before.rstrip('.')}. Then: {_what(work.repair, 200)}. Now {listed(_passes([work]), 3)}."


def open_failures(recorded: list[Recorded]) -> dict[str, Recorded]:
    """What the record of a session leaves failing, by the key of the command that failed."""
    left: dict[str, Recorded] = {}
    for line in recorded:
        if command := _failed_command(line):
            left[read(command).key] = line
        elif left:
            passed = _passed_keys(line)
            left = {key: failure for key, failure in left.items() if key not in passed}
    return left


def settled_failures(recorded: list[Recorded]) -> set[int]:
    """The numbers of recorded failures that were put right later in the session."""
    left = {line.number for line in open_failures(recorded).values()}
    return {line.number for line in recorded if _failed_command(line) and line.number not in left}


def _failed_command(line: Recorded) -> str | None:
    """The command of a recorded failure, from its facts; None for a line that records no failure of ours."""
    if line.type != "discovery" or not re.search(r"\bfail(?:s|ed)?\b", line.title):
        return None
    found = (_COMMAND_FACT.match(fact) for fact in line.facts)
    return next((match[1] for match in found if match), None)


def _passed_keys(line: Recorded) -> set[str]:
    """The keys of the commands of which a line of the record says that they pass."""
    passed = (_PASSES_FACT.match(fact) for fact in line.facts)
    return {read(match[1]).key for match in passed if match}


def of_failures(failures: list[Failure]) -> DraftObservation:
    """Runs of one command that failed and have not passed since, told by the last of them."""
    last = failures[-1]
    facts = _failure_facts(last)
    first = failures[0].outcome
    if first.counts and first.counts != last.outcome.counts:
        facts.append(f"Before that: {first.counts}")
    elif first.error != last.outcome.error:
        facts.append(f"Before that: {first.error}")
    return DraftObservation(
        type="discovery",
        title=_failure_title(last),
        subtitle=f"{last.outcome.counts}." if last.outcome.counts else None,
        facts=facts[:_MAX_FACTS],
        concepts=["gotcha"],
        events=[failure.tag for failure in failures],
    )


def _failure_title(failure: Failure) -> str:
    names, error = failure.outcome.names, _MODULE.sub("", failure.outcome.error)
    if len(names) == 1:
        return shorten(f"{names[0]} fails: {error}", MAX_TITLE)
    if names:
        return shorten(f"{len(names)} tests fail ({listed(names, 1)}): {error}", MAX_TITLE)
    return shorten(f"`{failure.command.shown}` failed: {error}", MAX_TITLE)


def _failure_facts(failure: Failure) -> list[str]:
    outcome = failure.outcome
    exit_code = f"exit code {outcome.exit_code}" if outcome.exit_code is not None else ""
    facts = [f"Command: `{failure.command.shown}`" + _in_brackets("; ".join(filter(None, [exit_code, outcome.counts])))]
    if outcome.names:
        facts.append(f"Failing: {listed(outcome.names, 6)}")
    if outcome.error and outcome.error != exit_code:
        facts.append(f"Error: {outcome.error}")
    if outcome.place:
        facts.append(f"At: {outcome.place}")
    return facts


def of_flaky(tag: str, ran: Ran, failures: list[Failure], reads: list[str]) -> DraftObservation:
    draft = of_failures(failures)
    draft.title = shorten(f"Passes on a second run without a change: {listed(failures[0].outcome.names, 2)}", MAX_TITLE)
    draft.facts = [*draft.facts[: _MAX_FACTS - 1], f"Passes: `{ran.command.shown}`{_in_brackets(ran.outcome.counts)}"]
    draft.files_read = list(dict.fromkeys(reads))[:_MAX_READS]
    draft.events.append(tag)
    return draft


def of_recovery(tag: str, ran: Ran, earlier: Recorded, recorded: list[Recorded]) -> DraftObservation:
    """A run that passes, after a failure that an earlier batch recorded; what was changed between is named."""
    between = [line for line in recorded if line.number > earlier.number and line.files_modified]
    steps = listed([f"#{line.number} {line.title}" for line in between[-3:]], 3)
    since = f" Changed since: {steps}." if steps else ""
    return DraftObservation(
        type="bugfix" if between else "discovery",
        title=shorten(f"Fixed {_recorded_subject(earlier)}: {_passing(ran)} again", MAX_TITLE),
        narrative=f"It had failed: {earlier.title} (#{earlier.number}).{since}",
        facts=[f"Passes: `{ran.command.shown}`{_in_brackets(ran.outcome.counts)}"],
        concepts=["problem-solution"],
        files_modified=list(dict.fromkeys(path for line in between for path in line.files_modified)),
        events=[tag],
    )


def of_commit(
    tag: str, ran: Ran, works: list[Work], failures: list[Failure], recorded: list[Recorded], root: str | None
) -> DraftObservation:
    """A commit and everything in the batch that it sums up."""
    subject, body = _message(ran)
    steps = [step for work in works for step in work.steps]
    met = [work for work in works if work.failures or work.earlier]
    slips = [f"A first attempt to commit failed: {failure.outcome.error}" for failure in failures[:1]]
    changed = list(together(one for step in steps for one in step.changes))
    return DraftObservation(
        type=_commit_type(subject, fixed=any(work.fixes for work in works)),
        title=shorten(subject, MAX_TITLE),
        subtitle=_sentence([_what(steps, 200)]) if steps else None,
        narrative="\n\n".join(filter(None, [body, *map(_how_fixed, met)])) or None,
        facts=_facts(works, _commit_fact(ran), *slips),
        concepts=["problem-solution", "what-changed"] if met else ["what-changed"],
        files_read=_reads(works),
        files_modified=_committed_files(ran, changed, recorded, root),
        events=[*(one for work in works for one in work.tags), *(failure.tag for failure in failures), tag],
    )


def _message(ran: Ran) -> tuple[str, str]:
    """Subject and body of a commit, from its words, its here-document, or what git answered."""
    words, given = ran.command.chief.words, list[str]()
    for flag, value in zip(words, [*words[1:], ""], strict=True):
        if re.fullmatch(r"-[a-zA-Z]*m|--message", flag):
            given.append(value)
        elif flag.startswith("--message="):
            given.append(flag.partition("=")[2])
    text = "\n\n".join(given)
    if not text or "$(" in text:
        text = ran.command.heredocs[0] if ran.command.heredocs else ""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if not re.match(r"(?:co-authored-by|signed-off-by):|🤖", line, re.IGNORECASE)]
    body = " ".join(lines[1:]).strip()
    answered = next((line.partition("] ")[2] for line in ran.outcome.output.splitlines() if _COMMITTED.match(line)), "")
    return (lines[0] if lines else "") or answered or "Committed", shorten(body, 800)


def _commit_type(subject: str, *, fixed: bool) -> str:
    found = next((name for name, pattern in _COMMIT_TYPES if pattern.match(subject)), None)
    return found or ("bugfix" if fixed else "change")


def _commit_fact(ran: Ran) -> str:
    commit, size = _COMMITTED.search(ran.outcome.output), _COMMIT_SIZE.search(ran.outcome.output)
    text = f"Commit {commit[2]} on {commit[1]}" if commit else "Committed"
    return f"{text} ({counted(int(size[1]), 'file')}, +{size[2] or 0}/-{size[3] or 0})" if size else text


def _committed_files(ran: Ran, changed: list[str], recorded: list[Recorded], root: str | None) -> list[str]:
    """The files of this batch and those git names; with those of earlier batches when together they are as many as git says."""
    named = _CREATED.findall(ran.outcome.output) + _added_paths(ran.command, root)
    since = list[str]()
    for line in recorded:
        since = [] if any(fact.startswith("Commit ") for fact in line.facts) else [*since, *line.files_modified]
    size = _COMMIT_SIZE.search(ran.outcome.output)
    known = list(dict.fromkeys([*since, *changed, *named]))
    return known if size and int(size[1]) == len(known) else list(dict.fromkeys([*changed, *named]))


def _added_paths(command: Command, root: str | None) -> list[str]:
    """Files that `git add` names on the line of the commit."""
    added = [word for part in command.parts if part.label == "git add" for word in part.words[1:]]
    return [relative(word, root) for word in added if re.search(r"\.\w+$", word) and "*" not in word]


def add_push(commit: DraftObservation, tag: str, ran: Ran) -> None:
    """A push right after a commit is a fact of the commit."""
    commit.events.append(tag)
    commit.facts = [*commit.facts[: _MAX_FACTS - 1], _push_text(ran)]


def _push_text(ran: Ran) -> str:
    found = _PUSHED.search(ran.outcome.output)
    words = [word for word in ran.command.chief.words[2:] if not word.startswith("-")]
    branch = found[2] if found else "".join(words[1:2])
    return f"Pushed {branch or 'the branch'} to {words[0] if words else 'its remote'}"


def of_deed(tag: str, ran: Ran) -> DraftObservation:
    """A command that does something lasting outside the files: a push, a merge, a migration, a deployment."""
    label, shown = ran.command.chief.label, ran.command.shown
    answer = [shorten(line, 160) for line in ran.outcome.output.splitlines() if line.strip()]
    title = _push_text(ran) if label == "git push" else _deed_title(label, ran.command.chief.words) or f"Ran `{shown}`"
    return DraftObservation(
        type="change",
        title=shorten(title, MAX_TITLE),
        facts=[f"Command: `{shown}`", *(f"Answer: {line}" for line in answer[-1:])],
        concepts=["what-changed"],
        events=[tag],
    )


_DEEDS = {
    "git merge": "Merged",
    "git revert": "Reverted",
    "git tag": "Tagged",
    "git rebase": "Rebased onto",
    "git cherry-pick": "Cherry-picked",
    "alembic upgrade": "Migrated the database to",
    "alembic downgrade": "Took the database back to",
}
_GH_DEEDS = {"gh pr create": "Opened pull request", "gh issue create": "Opened issue", "gh release create": "Released"}


def _deed_title(label: str, words: list[str]) -> str:
    if label in _GH_DEEDS:
        flags = dict(pairwise(words))
        name = flags.get("--title") or flags.get("-t") or "".join(words[3:4])
        return f'{_GH_DEEDS[label]} "{name}"'
    objects = [word for word in words[2:] if not word.startswith("-")]
    return f"{_DEEDS[label]} {objects[0]}" if label in _DEEDS and objects else ""
