"""Wording: a work, a failure, a commit, a deed, each as one draft observation."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import cast

import msgspec

from cmserver.providers.model import DraftObservation, Recorded
from cmserver.providers.rules import symbols, titles
from cmserver.providers.rules.acts import Ran
from cmserver.providers.rules.commands import Command, Sort, packages, read
from cmserver.providers.rules.edits import FileChange, together
from cmserver.providers.rules.outcomes import Outcome
from cmserver.providers.rules.phrases import record
from cmserver.providers.rules.phrases.manner import counted, most_facts, words
from cmserver.providers.rules.text import MAX_TITLE, listed, relative, shorten

_MAX_READS = 8
_COMMITTED = re.compile(r"^(?:Output: )?\[(\S+)(?: \([^)\n]*\))? ([0-9a-f]{6,40})\]", re.MULTILINE)
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


def install_phrase(label: str, spelled: list[str]) -> str:
    """`added dev dependency hypothesis (uv)`, from the words of an install command."""
    names = packages(spelled)
    tool = label.split(maxsplit=1)[0]
    if tool in {"apt", "apt-get", "brew", "apk", "dnf", "conda"}:
        return words().installed.format(names=listed(names, 4), tool=tool)
    is_dev = bool({"-D", "--save-dev", "--dev", "-d", "--group=dev"} & set(spelled))
    forms = words().dev_dependency if is_dev else words().dependency
    return counted(forms, len(names), names=listed(names, 4), tool=tool)


def of_work(work: Work, request: str | None) -> DraftObservation:
    """The change a burst made; a bugfix when it set out from a run that failed and now passes."""
    changes = together(change for step in work.steps for change in step.changes)
    what = _what(work.steps, MAX_TITLE)
    met = bool(work.failures or work.earlier)
    asked = f'{words().asked_for}: "{shorten(request, 200)}"' if request else ""
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
    files = counted(words().files, len(changes))
    return words().size.format(files=files, plus=plus, minus=minus) if plus or minus else ""


def _last_passes(works: list[Work]) -> list[Ran]:
    """The last passing run of each kind."""
    return list({run.command.chief.label: run for work in works for run in work.passes.values()}.values())


def _passes(works: list[Work]) -> list[str]:
    return [_passing(ran) for ran in _last_passes(works)]


def _passing(ran: Ran) -> str:
    known = ran.command.chief.sort in {Sort.TEST, Sort.CHECK}
    counts = ran.outcome.counts
    name = ran.command.chief.label if known else f"`{ran.command.shown}`"
    return words().passing.format(name=name) + (f" ({counts})" if re.match(r"\d", counts) else "")


def _sentence(parts: list[str]) -> str | None:
    told = "; ".join(filter(None, parts))
    return f"{told}." if told else None


def _facts(works: list[Work], *first: str) -> list[str]:
    files = together(change for work in works for step in work.steps for change in step.changes)
    failures = [failure for work in works for failure in work.failures]
    failed = _failed_before(failures[0]) if failures else []
    proofs = [passes_fact(run) for run in _last_passes(works)][-3:]
    room = max(1, most_facts() - len(first) - len(failed) - len(proofs))
    return [*first, *[change.fact() for change in list(files.values())[:room]], *failed, *proofs]


def _failed_before(failure: Failure) -> list[str]:
    names = failure.outcome.names
    told = f"{words().failed_before}: `{failure.command.shown}`: {failure.outcome.error}"
    return [told, *([f"{words().failing}: {listed(names, 6)}"] if names else [])]


def passes_fact(ran: Ran) -> str:
    """That a command passes; later batches read it again."""
    return f"{words().passes}: `{ran.command.shown}`{_in_brackets(ran.outcome.counts)}"


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _reads(works: list[Work]) -> list[str]:
    return list(dict.fromkeys(path for work in works for path in work.reads))[:_MAX_READS]


def _fixed(work: Work) -> str:
    subject = _failing_subject(work.failures[0].outcome) if work.failures else _recorded_subject(work.earlier)
    what = _what(work.repair, MAX_TITLE - len(words().fixed.format(subject=subject, what="")))
    return shorten(words().fixed.format(subject=subject, what=what[:1].lower() + what[1:]), MAX_TITLE)


def _failing_subject(outcome: Outcome) -> str:
    if len(outcome.names) == 1:
        return shorten(outcome.names[0], 50)
    return words().failing_tests.format(count=len(outcome.names)) if outcome.names else shorten(outcome.error, 50)


def _recorded_subject(earlier: Recorded | None) -> str:
    """What a recorded failure was about: `test_x fails: AssertionError` is about test_x."""
    subject, count, error = record.failure(earlier.title if earlier else "")
    if count:
        return words().failing_tests.format(count=count)
    return shorten(subject or error, 50)


def _how_fixed(work: Work) -> str:
    if work.failures:
        failure = work.failures[0]
        before = words().failed_with.format(command=failure.command.shown, error=failure.outcome.error)
    else:
        before = f"#{work.earlier.number}: {work.earlier.title}" if work.earlier else ""
    what, passes = _what(work.repair, 200), listed(_passes([work]), 3)
    return words().how_fixed.format(before=before.rstrip("."), what=what, passes=passes)


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
    return record.command(line.facts) if line.type == "discovery" and record.tells_failure(line.title) else None


def _passed_keys(line: Recorded) -> set[str]:
    """The keys of the commands of which a line of the record says that they pass."""
    return {read(command).key for command in record.passed(line.facts)}


def of_failures(failures: list[Failure]) -> DraftObservation:
    """Runs of one command that failed and have not passed since, told by the last of them."""
    last = failures[-1]
    facts = _failure_facts(last)
    first = failures[0].outcome
    if first.counts and first.counts != last.outcome.counts:
        facts.append(f"{words().before_that}: {first.counts}")
    elif first.error != last.outcome.error:
        facts.append(f"{words().before_that}: {first.error}")
    return DraftObservation(
        type="discovery",
        title=_failure_title(last),
        subtitle=f"{last.outcome.counts}." if last.outcome.counts else None,
        facts=facts[: most_facts()],
        concepts=["gotcha"],
        events=[failure.tag for failure in failures],
    )


def _failure_title(failure: Failure) -> str:
    names, error = failure.outcome.names, _MODULE.sub("", failure.outcome.error)
    if len(names) == 1:
        return shorten(words().fails.format(name=names[0], error=error), MAX_TITLE)
    if names:
        return shorten(words().tests_fail.format(count=len(names), names=listed(names, 1), error=error), MAX_TITLE)
    return shorten(words().failed.format(command=failure.command.shown, error=error), MAX_TITLE)


def _failure_facts(failure: Failure) -> list[str]:
    outcome = failure.outcome
    exit_code = words().exit_code.format(code=outcome.exit_code) if outcome.exit_code is not None else ""
    facts = [f"{words().command}: `{failure.command.shown}`" + _in_brackets("; ".join(filter(None, [exit_code, outcome.counts])))]
    if outcome.names:
        facts.append(f"{words().failing}: {listed(outcome.names, 6)}")
    if outcome.error and outcome.error != exit_code:
        facts.append(f"{words().error}: {outcome.error}")
    if outcome.place:
        facts.append(f"{words().at}: {outcome.place}")
    return facts


def of_flaky(tag: str, ran: Ran, failures: list[Failure], reads: list[str]) -> DraftObservation:
    draft = of_failures(failures)
    draft.title = shorten(words().flaky.format(names=listed(failures[0].outcome.names, 2)), MAX_TITLE)
    draft.facts = [*draft.facts[: most_facts() - 1], passes_fact(ran)]
    draft.files_read = list(dict.fromkeys(reads))[:_MAX_READS]
    draft.events.append(tag)
    return draft


def of_recovery(tag: str, ran: Ran, earlier: Recorded, recorded: list[Recorded]) -> DraftObservation:
    """A run that passes, after a failure that an earlier batch recorded; what was changed between is named."""
    between = [line for line in recorded if line.number > earlier.number and line.files_modified]
    steps = listed([f"#{line.number} {line.title}" for line in between[-3:]], 3)
    told = [words().it_had_failed.format(title=earlier.title, number=earlier.number)]
    told += [words().changed_since.format(steps=steps)] if steps else []
    again = words().passes_again.format(passes=_passing(ran))
    return DraftObservation(
        type="bugfix" if between else "discovery",
        title=shorten(words().fixed.format(subject=_recorded_subject(earlier), what=again), MAX_TITLE),
        narrative=" ".join(told),
        facts=[passes_fact(ran)],
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
    slips = [words().first_attempt.format(error=failure.outcome.error) for failure in failures[:1]]
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
    spelled, given = ran.command.chief.words, list[str]()
    for flag, value in zip(spelled, [*spelled[1:], ""], strict=True):
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
    return (lines[0] if lines else "") or answered or words().committed, shorten(body, 800)


def _commit_type(subject: str, *, fixed: bool) -> str:
    found = next((name for name, pattern in _COMMIT_TYPES if pattern.match(subject)), None)
    return found or ("bugfix" if fixed else "change")


def _commit_fact(ran: Ran) -> str:
    commit, size = _COMMITTED.search(ran.outcome.output), _COMMIT_SIZE.search(ran.outcome.output)
    text = f"{words().commit} {words().on_branch.format(hash=commit[2], branch=commit[1])}" if commit else words().committed
    return f"{text} ({counted(words().files, int(size[1]))}, +{size[2] or 0}/-{size[3] or 0})" if size else text


def _committed_files(ran: Ran, changed: list[str], recorded: list[Recorded], root: str | None) -> list[str]:
    """The files of this batch and those git names; with those of earlier batches when together they are as many as git says."""
    named = _CREATED.findall(ran.outcome.output) + _added_paths(ran.command, root)
    since = list[str]()
    for line in recorded:
        since = [] if record.is_commit(line.facts) else [*since, *line.files_modified]
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
    commit.facts = [*commit.facts[: most_facts() - 1], _push_text(ran)]


def _push_text(ran: Ran) -> str:
    found = _PUSHED.search(ran.outcome.output)
    named = [word for word in ran.command.chief.words[2:] if not word.startswith("-")]
    branch = found[2] if found else "".join(named[1:2])
    return words().pushed.format(branch=branch or words().the_branch, remote=named[0] if named else words().its_remote)


def of_deed(tag: str, ran: Ran) -> DraftObservation:
    """A command that does something lasting outside the files: a push, a merge, a migration, a deployment."""
    label, shown = ran.command.chief.label, ran.command.shown
    answer = [shorten(line, 160) for line in ran.outcome.output.splitlines() if line.strip()]
    title = (
        _push_text(ran)
        if label == "git push"
        else _deed_title(label, ran.command.chief.words) or words().ran.format(command=f"`{shown}`")
    )
    return DraftObservation(
        type="change",
        title=shorten(title, MAX_TITLE),
        facts=[f"{words().command}: `{shown}`", *(f"{words().answer}: {line}" for line in answer[-1:])],
        concepts=["what-changed"],
        events=[tag],
    )


_DEEDS = {
    "git merge": "merged",
    "git revert": "reverted",
    "git tag": "tagged",
    "git rebase": "rebased_onto",
    "git cherry-pick": "cherry_picked",
    "alembic upgrade": "migrated_to",
    "alembic downgrade": "took_back_to",
}
_GH_DEEDS = {"gh pr create": "opened_pull_request", "gh issue create": "opened_issue", "gh release create": "released"}
"""The field of `Words` that tells it."""


def _deed_title(label: str, spelled: list[str]) -> str:
    if label in _GH_DEEDS:
        flags = dict(pairwise(spelled))
        name = flags.get("--title") or flags.get("-t") or "".join(spelled[3:4])
        return _worded_deed(_GH_DEEDS[label], f'"{name}"')
    objects = [word for word in spelled[2:] if not word.startswith("-")]
    return _worded_deed(_DEEDS[label], objects[0]) if label in _DEEDS and objects else ""


def _worded_deed(name: str, what: str) -> str:
    return cast("str", getattr(words(), name)).format(what=what)
