"""Makes the observations of a batch: edits gather to change sets, failures wait for the run that passes, a commit sums up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from cmserver.base.tolerant_json import field, record
from cmserver.providers.model import Answer, DraftObservation, Skip, Verbosity, event_tag
from cmserver.reading.model import CommandRun, EventReading, FileChange, FileEdit, IgnoredEvent, OpenEnd
from cmserver.reading.open_ends import make_title, read_reports_by_number
from cmserver.reading.phrases import find_phrase
from cmserver.reading.work_tree import Edit, TreeChange, WorkTree
from cmserver.rules import drafts
from cmserver.rules.drafts import ChangeSet, ChangeStep, FailedRun
from cmserver.rules.failures import RecordedFailures
from cmserver.rules.findings import read_finding
from cmserver.rules.model import LaidDown, SessionRecord, TodoList, TurnEnd
from cmserver.rules.turns import gather_work
from cmserver.tooluse.model import Purpose

_MAX_FILES = 6
_MAX_FACTS, _MAX_FACTS_VERBOSE = 8, 20
_INSTALLED = re.compile(r"already satisfied|already the newest")
_MAX_TODOS = 10
_ESSENTIAL_TYPES = {"bugfix", "feature", "decision", "security_alert", "security_note", "sensitive"}


def observe(events: Sequence[EventReading], session: SessionRecord, verbosity: Verbosity = "normal") -> Answer:
    """The observations of a batch. Every event is named by one of them or skipped with a reason."""
    batch = _Batch(events, session, verbosity)
    for place, event in enumerate(events):
        batch.add(place, event)
    return batch.answer()


class _Batch:
    def __init__(self, events: Sequence[EventReading], session: SessionRecord, verbosity: Verbosity) -> None:
        self.events = events
        self.session = session
        self.verbosity = verbosity
        self.max_facts = _MAX_FACTS_VERBOSE if verbosity == "verbose" else _MAX_FACTS
        self.skipped: list[Skip] = []
        self.drafts: list[DraftObservation] = []
        self.change_sets: list[ChangeSet] = []
        """The changes since the last commit, oldest first."""
        self.files_read: list[str] = []
        self.tree = WorkTree()
        self.undone: list[tuple[ChangeSet, ChangeStep]] = []
        """What was taken back or put away, by the parts that are gone."""
        self.failures: dict[object, list[FailedRun]] = {}
        """The runs that failed and have not passed since, by the check."""
        own = {line.number for line in session.recorded}
        self.earlier = RecordedFailures(session.recorded, [end for end in session.open_ends if end.number not in own])
        self.passed: dict[str, list[int]] = {}
        """The numbers of the failures on record that are over, by the tag of the run that shows it."""
        self.essential: list[DraftObservation] = []
        """What `minimal` keeps: commits, and what ends a failure that is on record."""
        self.commits: list[DraftObservation] = []
        self.turn_ends: list[tuple[str, TurnEnd]] = []
        """The agent's last messages, with their tags."""
        self.todos: tuple[str, TodoList] | None = None
        """The agent's own list as it was last, with its tag."""
        self.instructions: list[DraftObservation] = []
        self.unfixed: list[DraftObservation] = []
        """Checks that fail: observations of their own, unless the agent says what is open about them."""
        self.tag_by_content: dict[bytes, str] = {}
        self.ends = {key: event_tag(place) for place, event in enumerate(events) if (key := _tool_use_key(event))}
        """The event that tells last of a tool use, by the tool use's id, tool and input."""
        self.places: dict[str, int] = {}

    def add(self, place: int, event: EventReading) -> None:
        """Take the next event, with its place in the batch: skip it, keep its finding, or let it wait for what follows."""
        tag = event_tag(place)
        self.places[tag] = place
        use = event.tool_use
        self._close_by_number(tag, event.prompt)
        content = msgspec.json.encode([use.tool, use.input, use.output, use.error] if use else event.payload)
        last = self.ends.get(_tool_use_key(event), tag)
        if last != tag:
            self._skip(tag, f"its end is told by {last}")
            return
        first = self.tag_by_content.setdefault(content, tag)
        if first != tag and not isinstance(event.act, CommandRun):
            self._skip(tag, f"repeats {first}")
            return
        act = event.act or read_finding(tag, event)
        effect = self.tree.take(tag, event.act)
        if effect.gone or effect.back or effect.commits:
            self._follow(effect)
        if isinstance(act, IgnoredEvent):
            self._ignore(tag, act)
        elif isinstance(act, TurnEnd):
            self.turn_ends.append((tag, act))
            self.files_read = []
        elif isinstance(act, TodoList):
            self._take_todos(tag, act)
        elif isinstance(act, LaidDown):
            self._keep_rules(tag, act)
        elif isinstance(act, DraftObservation):
            self._keep(act, is_essential=event.is_by_user or event.tool_use is None)
            self.instructions += [act] if event.is_by_user else []
        elif isinstance(act, FileEdit):
            self._change_set(act.changes).steps.append(ChangeStep(tag=tag, place=place, changes=act.changes))
        else:
            self._add_run(tag, place, act, has_undone=bool(effect.gone))

    def _ignore(self, tag: str, act: IgnoredEvent) -> None:
        self.files_read += act.files_read
        if all(tag not in draft.events for draft in self.drafts):
            self._skip(tag, act.reason)

    def _take_todos(self, tag: str, todos: TodoList) -> None:
        if self.todos is not None:
            self._skip(self.todos[0], "the agent's own plan")
        self.todos = tag, todos

    def _close_by_number(self, tag: str, prompt: str) -> None:
        """Keep what the user says of open ends by their numbers: that they are over."""
        numbers = {end.number for end in [*self.session.open_ends, *self.session.recorded] if end.state == "open"}
        for sentence, named in read_reports_by_number(prompt):
            if closed := [number for number in named if number in numbers]:
                self.instructions.append(drafts.draft_report(tag, sentence, closed))
                self._keep(self.instructions[-1], is_essential=True)

    def _add_run(self, tag: str, place: int, run: CommandRun, *, has_undone: bool) -> None:
        if run.command.compares or (self.tree.stashed and run.command.is_check):
            self._skip(tag, "runs without the changes")
        elif has_undone and run.command.main.purpose <= Purpose.ROUTINE:
            self._skip(tag, "undoes changes")
        elif not run.outcome.failed:
            self._add_pass(tag, place, run)
        else:
            self.failures.setdefault(run.result.identity, []).append(FailedRun(tag=tag, place=place, run=run))
            for result in run.results:
                self.earlier.add(result)

    def answer(self) -> Answer:
        """The answer for all events: drafts of what is still open are made first."""
        self._skip_undone()
        for change_set in self.change_sets:
            self._keep(drafts.draft_change_set(change_set, self.max_facts), is_essential=change_set.earlier is not None)
        for failures in self.failures.values():
            self._keep_failure(failures)
        if self.turn_ends:
            self._gather_turns()
        self._keep_todos()
        for tag, numbers in self.passed.items():
            self._add_closed(next((draft for draft in self.drafts if tag in draft.events), None), numbers)
        if self.verbosity == "minimal":
            self._drop_inessential()
        for draft in self.drafts:
            draft.events.sort(key=self.places.__getitem__)
        self.drafts.sort(key=lambda draft: self.places[draft.events[-1]])
        return Answer(observations=self.drafts, skipped=self.skipped)

    def _skip_undone(self) -> None:
        """Say of the events that left nothing behind that what they changed was undone."""
        told = {tag for change_set in self.change_sets for tag in change_set.tags}
        for change_set, step in self.undone:
            is_gone = not any(change_set is it for it in self.change_sets)
            for tag in [step.tag, *(change_set.pass_tags if is_gone else [])]:
                if tag not in told:
                    told.add(tag)
                    self._skip(tag, "undone later" if tag == step.tag else "passes, and what changed was undone")

    def _skip(self, tag: str, reason: str) -> None:
        self.skipped.append(Skip(event=tag, reason=reason))

    def _keep(self, draft: DraftObservation, *, is_essential: bool = False) -> None:
        self.drafts.append(draft)
        if is_essential:
            self.essential.append(draft)

    def _change_set(self, changes: list[FileChange]) -> ChangeSet:
        """The change set an edit belongs to: the last one, until a run passed on it or it has many files."""
        paths = {change.path for change in changes}
        if self.change_sets:
            last = self.change_sets[-1]
            is_same = bool(paths) and paths <= last.paths
            if is_same or not (last.passes or len(last.paths | paths) > _MAX_FILES):
                return last
        self.change_sets.append(ChangeSet(files_read=self.files_read))
        self.files_read = []
        return self.change_sets[-1]

    def _follow(self, effect: TreeChange) -> None:
        """Let what a command took back or brought back of the changes be gone or there. A failure that they ended is open again."""
        self._undo([edit for edit in effect.gone if edit not in effect.back])
        again = [(change_set, step) for change_set, step in self.undone if _is_back(step, effect.back)]
        self.undone = [it for it in self.undone if it not in again]
        for change_set, step in again:
            change_set.steps = sorted([*change_set.steps, step], key=lambda step: step.place)
            if not any(change_set is it for it in self.change_sets):
                self.change_sets.append(change_set)
        for commit in self.commits[len(self.commits) - effect.commits :] if effect.commits else []:
            self.drafts = [draft for draft in self.drafts if draft is not commit]
            for tag in commit.events:
                self._skip(tag, "undone later")

    def _undo(self, gone: list[Edit]) -> None:
        paths: dict[object, set[str]] = {}
        for edit in gone:
            paths.setdefault(edit.event, set()).add(edit.path)
        for change_set in list(self.change_sets):
            kept: list[ChangeStep] = []
            for step in change_set.steps:
                lost = [change for change in step.changes if change.path in paths.get(step.tag, ())]
                left = [change for change in step.changes if change not in lost]
                if lost:
                    self.undone.append((change_set, msgspec.structs.replace(step, changes=lost)))
                if left or not step.changes:
                    kept.append(msgspec.structs.replace(step, changes=left))
            change_set.steps = kept
            if not kept:
                self.change_sets.remove(change_set)
                for failure in change_set.failures:
                    self.failures.setdefault(failure.run.result.identity, []).append(failure)
                    for result in failure.run.results:
                        self.earlier.passes.add(result)
                change_set.failures = []

    def _add_pass(self, tag: str, place: int, run: CommandRun) -> None:
        """Take a command that passed: a commit, the proof of a change, the end of a failure, or an ordinary run."""
        command = run.command
        settled = [line for result in run.known_results for line in self.earlier.add(result)]
        self.passed[tag] = [line.number for line in settled]
        earlier = settled[-1] if settled else None
        failures = self._take_failures() if run.known_results else []
        last = self.change_sets[-1] if self.change_sets else None
        if command.main.purpose is Purpose.COMMIT:
            self._add_commit(tag, run, failures)
        elif not run.is_proved and command.is_check:
            self._skip(tag, f"nothing says how it ended: {command.main.label}")
        elif last and last.is_proved_by(run, failures):
            last.add_pass(tag, place, run, failures)
            last.earlier = last.earlier or earlier
        elif failures:
            self._add_unexplained_pass(tag, run, failures)
        elif earlier:
            self._keep(drafts.draft_recovery(tag, run, earlier, self.session.recorded), is_essential=True)
        else:
            self._add_plain_pass(tag, place, run)

    def _take_failures(self) -> list[FailedRun]:
        """The failed runs of the batch that are over by now; the others go on waiting."""
        passes, over = self.earlier.passes, list[FailedRun]()
        for check, failures in list(self.failures.items()):
            results = [result for failure in failures for result in failure.run.results if not result.passed]
            if all(map(passes.cover, results)):
                over += self.failures.pop(check)
        return over

    def _add_unexplained_pass(self, tag: str, run: CommandRun, failures: list[FailedRun]) -> None:
        """Take a command that failed and passes without a change between: a flaky test is kept, a mistyped command is not."""
        if failures[0].run.outcome.failing_tests:
            self._keep(drafts.draft_flaky_test(tag, run, failures, self.files_read, self.max_facts))
            self.files_read = []
            return
        for skipped_tag in (*(failure.tag for failure in failures), tag):
            self._skip(skipped_tag, f"a retry that passed: {run.command.main.label}")

    def _add_plain_pass(self, tag: str, place: int, run: CommandRun) -> None:
        """Take a command that passed and ends no failure: mostly routine."""
        main, output = run.command.main, run.outcome.output
        if run.command.is_check:
            self._skip(tag, f"passes, nothing changed: {main.label}")
        elif main.purpose is Purpose.INSTALL and _INSTALLED.search(output) and "Successfully installed" not in output:
            self._skip(tag, f"no effect: {main.label}")
        elif main.purpose is Purpose.INSTALL:
            self._change_set([]).steps.append(ChangeStep(tag=tag, place=place, install=drafts.install_phrase(run)))
        elif main.purpose is Purpose.DEED and ("up-to-date" in output or "up to date" in output.lower()):
            self._skip(tag, f"no effect: {main.label}")
        elif main.label == "git push" and main.purpose is Purpose.DEED and self.commits:
            drafts.add_push(self.commits[-1], tag, run, self.max_facts)
        elif main.purpose is Purpose.DEED:
            self._keep(drafts.draft_deed(tag, run))
        else:
            self._skip(tag, f"routine command: {main.label}")

    def _add_commit(self, tag: str, run: CommandRun, failures: list[FailedRun]) -> None:
        commit = drafts.draft_commit(tag, run, self.change_sets, failures, self.session.recorded, self.max_facts)
        self.commits.append(commit)
        self._keep(commit, is_essential=True)
        self.change_sets, self.files_read = [], []

    def _keep_failure(self, failures: list[FailedRun]) -> None:
        draft = drafts.draft_failure(failures, self.max_facts)
        if failures[0].run.command.is_check:
            self.unfixed.append(draft)
        number = next((line.number for line in reversed(self.session.recorded) if line.title == draft.title), None)
        before = self.earlier.numbers(failures[0].run.result)
        if number is None or not before:
            draft.closes = before  # which it takes the place of
            self.drafts.append(draft)
            return
        for failure in failures:
            self._skip(failure.tag, f"repeats #{number}")

    def _keep_rules(self, tag: str, act: LaidDown) -> None:
        for rule in act.rules:
            self.instructions.append(drafts.draft_rule(tag, rule))
            self._keep(self.instructions[-1], is_essential=True)

    def _gather_turns(self) -> None:
        """Make of each turn's drafts the few that are worth a line; what comes after the last turn's end stays as it is."""
        rest = sorted(self.drafts, key=lambda draft: max(self.places[tag] for tag in draft.events))
        gathered: list[DraftObservation] = []
        for tag, end in self.turn_ends:
            in_turn = [draft for draft in rest if max(self.places[source] for source in draft.events) <= self.places[tag]]
            rest = rest[len(in_turn) :]
            by_user = [draft for draft in in_turn if _is_in(draft, self.instructions)]
            commits = [draft for draft in in_turn if _is_in(draft, self.commits)]
            failed = [draft for draft in in_turn if draft.state == "open"]
            work = [draft for draft in in_turn if not _is_in(draft, [*by_user, *commits, *failed])]
            open_ends = [drafts.draft_open_end(tag, open_end) for open_end in end.open_ends if not self._is_failure(open_end.text)]
            said = end.message
            for open_end in open_ends:
                said = said.replace(open_end.quote or "", "")
            if not open_ends:
                self._skip(tag, "kept with its turn")
            self.essential += open_ends
            gathered += [*by_user, *gather_work(work, commits, said), *failed, *open_ends]
        self.drafts = [*gathered, *rest]

    def _is_failure(self, text: str) -> bool:
        """Whether a text is about a failure that is kept by itself, until the run that shows it to be over."""
        failures = [*self.unfixed, *self.earlier.lines]
        is_named = any(name in text for failure in failures for name in failure.anchors)
        return is_named or (bool(failures) and find_phrase("failing", text) is not None)

    def _keep_todos(self) -> None:
        """Keep what is unfinished in the agent's list when its turn has ended, and close what is no longer."""
        if self.todos is None:
            return
        tag, todos = self.todos
        has_ended = bool(self.turn_ends) and self.places[self.turn_ends[-1][0]] > self.places[tag]
        known = {line.title for line in self.session.recorded} | {draft.title for draft in self.drafts}
        made = [drafts.draft_open_end(tag, OpenEnd(item, make_title(item))) for item in todos.unfinished[:_MAX_TODOS] if has_ended]
        made = [draft for draft in made if draft.title not in known]
        for draft in made:
            self._keep(draft, is_essential=True)
        if not made:
            self._skip(tag, "the agent's own plan")
        finished = {make_title(item) for item in todos.finished}
        over = [line.number for line in self.session.recorded if line.state == "open" and line.title in finished]
        self._add_closed(next((draft for draft in self.drafts if draft.state != "open"), None), over)

    def _add_closed(self, draft: DraftObservation | None, numbers: list[int]) -> None:
        others = {number for other in self.drafts for number in other.closes}
        if draft is not None:
            draft.closes = [*draft.closes, *(number for number in numbers if number not in others)]

    def _drop_inessential(self) -> None:
        """Leave what changes how one works on, each with its title and one fact."""
        essential: list[DraftObservation] = []
        for draft in self.drafts:
            is_kept = _is_in(draft, self.essential)
            if is_kept or draft.type in _ESSENTIAL_TYPES or "gotcha" in draft.concepts:
                narrative = None if draft.facts else draft.narrative
                essential.append(msgspec.structs.replace(draft, subtitle=None, narrative=narrative, facts=draft.facts[:1]))
                continue
            for tag in draft.events:
                self._skip(tag, f"too little for verbosity minimal: {draft.type}")
        self.drafts = essential


def _is_back(step: ChangeStep, back: Sequence[Edit]) -> bool:
    """Whether a part of a step that was put away is there again."""
    return any(edit.event == step.tag and edit.path == change.path for edit in back for change in step.changes)


def _is_in(draft: DraftObservation, drafts: Iterable[DraftObservation]) -> bool:
    """Whether it is this very draft; two drafts may be equal."""
    return any(draft is other for other in drafts)


def _tool_use_key(event: EventReading) -> bytes:
    """The tool use that the event tells of; empty for none. An id alone says less: some agents count anew in each turn.

    What ran in the background is told of twice, and its end does not say that it did.
    """
    use = event.tool_use
    id_ = field(record(event.payload), "tool_use_id") if use else ""
    if use is None or not id_:
        return b""
    fields = {name: value for name, value in use.fields.items() if name != "run_in_background"}
    return msgspec.json.encode([id_, use.tool, fields or use.input], order="deterministic")
