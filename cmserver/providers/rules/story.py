"""A batch as a story: edits gather to works, failures wait for the run that passes, a commit sums up what went before."""

from __future__ import annotations

import msgspec

from cmserver.providers.model import Answer, DraftObservation, Prompt, PromptEvent, Skip
from cmserver.providers.rules import drafts, extent
from cmserver.providers.rules.acts import Act, Edited, Passed, Ran, Said, understand
from cmserver.providers.rules.commands import Sort
from cmserver.providers.rules.drafts import Failure, Step, Work
from cmserver.providers.rules.edits import FileChange
from cmserver.providers.rules.phrases.manner import as_wished

_MAX_FILES = 6


def tell(prompt: Prompt) -> Answer:
    """The observations of a batch. Every event is named by one of them or skipped with a reason."""
    with as_wished(prompt.wishes):
        story = _Story(prompt)
        for place, event in enumerate(prompt.events):
            story.take(place, event)
        return story.end()


class _Story:
    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self.skipped: list[Skip] = []
        self.done: list[DraftObservation] = []
        self.works: list[Work] = []
        """Edits since the last commit, oldest first."""
        self.reads: list[str] = []
        self.failures: dict[str, list[Failure]] = {}
        """By the key of the command: what failed and has not passed since."""
        self.earlier = drafts.open_failures(prompt.recorded)
        self.was_failing = set(self.earlier)
        self.commits: list[DraftObservation] = []
        self.looks: list[tuple[str, list[str]]] = []
        self.checks: list[tuple[str, Ran]] = []
        self.routine: list[tuple[str, Ran]] = []
        """What is told at `verbose` only."""
        self.seen: dict[bytes, str] = {}
        self.places: dict[str, int] = {}

    def take(self, place: int, event: PromptEvent) -> None:
        self.places[event.tag] = place
        act = understand(event, self.prompt.root)
        if not isinstance(act, Ran) and (first := self._seen_before(event)):
            self._skip(event.tag, f"repeats {first}")
            return
        self._act(event.tag, place, act)

    def _act(self, tag: str, place: int, act: Act) -> None:
        if isinstance(act, Passed):
            self.reads += act.reads
            if self.is_verbose and act.reads:
                self.looks.append((tag, act.reads))
            else:
                self._skip(tag, act.reason)
        elif isinstance(act, Said):
            act.draft.events.append(tag)
            self.done.append(act.draft)
        elif isinstance(act, Edited):
            self._work(act.changes).steps.append(Step(tag=tag, place=place, changes=act.changes))
        elif act.outcome.failed:
            self._fail(tag, place, act)
        else:
            self._pass(tag, act)

    def end(self) -> Answer:
        self.done += [drafts.of_work(work, self._request()) for work in self.works]
        for failures in self.failures.values():
            self._leave_open(failures)
        if self.is_verbose:
            self._tell_the_rest()
        elif self.prompt.wishes.verbosity == "minimal":
            self._leave_the_essential()
        for draft in self.done:
            draft.events.sort(key=self.places.__getitem__)
        self.done.sort(key=lambda draft: self.places[draft.events[-1]])
        return Answer(observations=self.done, skipped=self.skipped)

    @property
    def is_verbose(self) -> bool:
        return self.prompt.wishes.verbosity == "verbose"

    def _skip(self, tag: str, reason: str) -> None:
        self.skipped.append(Skip(event=tag, reason=reason))

    def _seen_before(self, event: PromptEvent) -> str | None:
        mark = msgspec.json.encode([event.tool_name, event.tool_input, event.tool_response, event.error, event.payload])
        first = self.seen.setdefault(mark, event.tag)
        return first if first != event.tag else None

    def _request(self) -> str | None:
        return self.prompt.requests[-1] if self.prompt.requests else None

    def _work(self, changes: list[FileChange]) -> Work:
        """The work an edit belongs to: the last one, until a run passed on it or it has many files."""
        last = self.works[-1] if self.works else None
        paths = {change.path for change in changes}
        if last and (_continues(last, paths) or not (last.passes or len(last.paths | paths) > _MAX_FILES)):
            return last
        self.works.append(Work(reads=self.reads))
        self.reads = []
        return self.works[-1]

    def _fail(self, tag: str, place: int, ran: Ran) -> None:
        failure = Failure(tag=tag, place=place, command=ran.command, outcome=ran.outcome)
        self.failures.setdefault(ran.command.key, []).append(failure)

    def _pass(self, tag: str, ran: Ran) -> None:
        command, key = ran.command, ran.command.key
        failures = self.failures.pop(key, [])
        earlier = self.earlier.pop(key, None)
        if command.chief.sort is Sort.COMMIT:
            self._commit(tag, ran, failures)
        elif failures and self._repaired(failures):
            self.works[-1].passed(tag, self.places[tag], ran, failures)
        elif failures:
            self._unexplained(tag, ran, failures)
        elif self._verifies(command.chief.sort):
            self.works[-1].passed(tag, self.places[tag], ran, [])
            self.works[-1].earlier = self.works[-1].earlier or earlier
        elif earlier:
            self.done.append(drafts.of_recovery(tag, ran, earlier, self.prompt.recorded))
        else:
            self._by_itself(tag, ran)

    def _verifies(self, sort: Sort) -> bool:
        return sort in {Sort.TEST, Sort.CHECK} and bool(self.works)

    def _repaired(self, failures: list[Failure]) -> bool:
        return bool(self.works) and self.works[-1].last_edit > failures[0].place

    def _unexplained(self, tag: str, ran: Ran, failures: list[Failure]) -> None:
        """It failed and passes, and nothing was changed between: a flaky test is worth knowing, a slip is not."""
        if failures[0].outcome.names:
            self.done.append(drafts.of_flaky(tag, ran, failures, self.reads))
            self.reads = []
            return
        for one in (*(failure.tag for failure in failures), tag):
            self._skip(one, f"a retry that passed: {ran.command.chief.label}")

    def _by_itself(self, tag: str, ran: Ran) -> None:
        chief = ran.command.chief
        if chief.sort in {Sort.TEST, Sort.CHECK} and self.is_verbose:
            self.checks.append((tag, ran))
        elif chief.sort in {Sort.TEST, Sort.CHECK}:
            self._skip(tag, f"passes, nothing changed: {chief.label}")
        elif chief.sort is Sort.INSTALL and "Successfully installed" not in ran.outcome.output and _had_already(ran):
            self._skip(tag, f"no effect: {chief.label}")
        elif chief.sort is Sort.INSTALL:
            install = drafts.install_phrase(chief.label, chief.words)
            self._work([]).steps.append(Step(tag=tag, place=self.places[tag], install=install))
        elif chief.sort is Sort.DEED:
            self._deed(tag, ran)
        elif self.is_verbose:
            self.routine.append((tag, ran))
        else:
            self._skip(tag, f"routine command: {chief.label}")

    def _deed(self, tag: str, ran: Ran) -> None:
        if "up-to-date" in ran.outcome.output or "up to date" in ran.outcome.output.lower():
            self._skip(tag, f"no effect: {ran.command.chief.label}")
        elif ran.command.chief.label == "git push" and self.commits:
            drafts.add_push(self.commits[-1], tag, ran)
        else:
            self.done.append(drafts.of_deed(tag, ran))

    def _commit(self, tag: str, ran: Ran, failures: list[Failure]) -> None:
        commit = drafts.of_commit(tag, ran, self.works, failures, self.prompt.recorded, self.prompt.root)
        self.commits.append(commit)
        self.done.append(commit)
        self.works, self.reads = [], []

    def _tell_the_rest(self) -> None:
        named = {path for draft in self.done for path in [*draft.files_read, *draft.files_modified]}
        unnamed = [(tag, reads) for tag, reads in self.looks if not named.issuperset(reads)]
        for tag in [tag for tag, reads in self.looks if named.issuperset(reads)]:
            self._skip(tag, "read for what was changed")
        self.done += [extent.of_looks(unnamed)] if unnamed else []
        self.done += [extent.of_checks(self.checks)] if self.checks else []
        self.done += [extent.of_routine(self.routine)] if self.routine else []

    def _leave_the_essential(self) -> None:
        told: list[DraftObservation] = []
        for draft in self.done:
            if any(draft is commit for commit in self.commits) or extent.is_essential(draft, self.was_failing):
                told.append(extent.shortened(draft))
                continue
            for tag in draft.events:
                self._skip(tag, f"too little for verbosity minimal: {draft.type}")
        self.done = told

    def _leave_open(self, failures: list[Failure]) -> None:
        draft = drafts.of_failures(failures)
        known = next((line.number for line in reversed(self.prompt.recorded) if line.title == draft.title), None)
        if known is None or failures[0].command.key not in self.earlier:
            self.done.append(draft)
            return
        for failure in failures:
            self._skip(failure.tag, f"repeats #{known}")


def _continues(work: Work, paths: set[str]) -> bool:
    return bool(paths) and paths <= work.paths


def _had_already(ran: Ran) -> bool:
    return "already satisfied" in ran.outcome.output or "already the newest" in ran.outcome.output
