"""Makes the observations of a batch: edits gather to change sets, failures wait for the run that passes, a commit sums up."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence

import msgspec

from cmserver.base.tolerant_json import field, record
from cmserver.models.providers.model import KINDS, Answer, DraftObservation, Skip, Verbosity, event_tag
from cmserver.reading.model import Act, CommandRun, EventReading, FileChange, FileEdit, IgnoredEvent, OpenEnd
from cmserver.reading.open_ends import make_title, read_reports_by_number
from cmserver.reading.phrases import find_phrase
from cmserver.reading.work_tree import WorkTree
from cmserver.rules import drafts
from cmserver.rules.drafts import ChangeSet, FailedRun
from cmserver.rules.failures import RecordedFailures
from cmserver.rules.findings import read_finding
from cmserver.rules.model import LaidDown, SessionRecord, TodoList, TurnEnd
from cmserver.rules.turns import gather_work
from cmserver.tooluse.model import Purpose
from cmserver.tooluse.taking_back import read_takings

_MAX_FILES = 6
_MAX_FACTS, _MAX_FACTS_VERBOSE = 8, 20
_INSTALLED = re.compile(r"already satisfied|already the newest")
_MAX_TODOS = 10
_ESSENTIAL_TYPES = {name for name, kind in KINDS.items() if kind.is_essential}


def observe(events: Sequence[EventReading], session: SessionRecord, verbosity: Verbosity = "normal") -> Answer:
    """The observations of a batch. Every event is named by one of them or skipped with a reason."""
    batch = _Batch(events, session, verbosity)
    kept = [place for place, event in enumerate(events) if not batch.skip_repeat(place, event)]
    batch.undone = _find_undone({event_tag(place): events[place].act for place in kept})
    for place in kept:
        batch.add(place, events[place])
    return batch.answer()


def _takes_back(run: CommandRun) -> bool:
    takings = (taking.verb for _, taking in read_takings(run.command))
    return not run.outcome.failed and any(verb in {"takes", "stashes", "reverts"} for verb in takings)


class _Undone(msgspec.Struct):
    """What a batch took back again, and the commands that did or ran meanwhile, by their tags."""

    edits: set[tuple[Hashable, str]] = set()
    """The tag of each edit, and its path."""
    commits: set[str] = set()
    undoing: set[str] = set()
    on_stash: set[str] = set()


def _find_undone(acts: Mapping[str, Act | None]) -> _Undone:
    undone, tree = _Undone(), WorkTree()
    commits, committed, edits = list[str](), set[tuple[Hashable, str]](), set[tuple[Hashable, str]]()
    for tag, act in acts.items():
        effect = tree.take(tag, act)
        gone = {(edit.event, edit.path) for edit in effect.gone}
        undone.edits |= gone if effect.commits else gone - committed
        undone.edits -= {(edit.event, edit.path) for edit in effect.back}
        undone.undoing |= {tag} if gone else set()
        undone.on_stash |= {tag} if tree.stashed else set()
        if isinstance(act, FileEdit):
            edits |= {(tag, change.path) for change in act.changes}
        elif isinstance(act, CommandRun) and act.command.main.purpose is Purpose.COMMIT and not act.outcome.failed:
            commits.append(tag)
            committed |= edits
        for _ in range(min(effect.commits, len(commits))):
            undone.commits.add(commits.pop())
    return undone


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
        self.undone = _Undone()
        self.is_undone_later = False
        """Whether all that was changed so far is taken back later."""
        self.failures: dict[object, list[FailedRun]] = {}
        """The runs that failed and have not passed since, by the check."""
        own = {line.number for line in session.recorded}
        self.earlier = RecordedFailures(session.recorded, [end for end in session.open_ends if end.number not in own])
        self.passed: dict[str, list[int]] = {}
        """The numbers of the failures on record that are over, by the tag of the run that shows it."""
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

    def skip_repeat(self, place: int, event: EventReading) -> bool:
        """Skip an event that says what another one of the batch says, unless what was done is taken back between them."""
        tag = event_tag(place)
        self.places[tag] = place
        use = event.tool_use
        content = msgspec.json.encode([use.tool, use.input, use.output, use.error] if use else event.payload)
        if (last := self.ends.get(_tool_use_key(event), tag)) != tag:
            self._skip(tag, f"its end is told by {last}")
            return True
        if isinstance(event.act, CommandRun) and _takes_back(event.act):
            self.tag_by_content.clear()
        first = self.tag_by_content.setdefault(content, tag)
        if first != tag and not isinstance(event.act, CommandRun):
            self._skip(tag, f"repeats {first}")
            return True
        return False

    def add(self, place: int, event: EventReading) -> None:
        """Take the next event, with its place in the batch: skip it, keep its finding, or let it wait for what follows."""
        tag = event_tag(place)
        self._close_by_number(tag, event.prompt)
        act = event.act or read_finding(tag, event)
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
            self.drafts.append(act)
            self.instructions += [act] if event.is_by_user else []
        elif isinstance(act, FileEdit):
            self._add_edit(tag, place, act)
        else:
            self._add_run(tag, place, act)

    def _add_edit(self, tag: str, place: int, act: FileEdit) -> None:
        changes = [change for change in act.changes if (tag, change.path) not in self.undone.edits]
        if changes:
            self._change_set(changes).add(tag, place, changes)
        else:
            self._skip(tag, "undone later")
        self.is_undone_later = not self.change_sets

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
                self.drafts.append(self.instructions[-1])

    def _add_run(self, tag: str, place: int, run: CommandRun) -> None:
        self.is_undone_later = self.is_undone_later and tag not in self.undone.undoing
        if run.command.compares or (tag in self.undone.on_stash and run.command.is_check):
            self._skip(tag, "runs without the changes")
        elif tag in self.undone.undoing and run.command.main.purpose <= Purpose.ROUTINE:
            self._skip(tag, "undoes changes")
        elif tag in self.undone.commits:
            self._skip(tag, "undone later")
        elif self.is_undone_later and not run.outcome.failed and run.command.is_check:
            self._skip(tag, "passes, and what changed was undone")
        elif not run.outcome.failed:
            self._add_pass(tag, place, run)
        else:
            self.failures.setdefault(run.result.identity, []).append(FailedRun(tag=tag, place=place, run=run))
            for result in run.results:
                self.earlier.add(result)

    def answer(self) -> Answer:
        """The answer for all events: drafts of what is still open are made first."""
        self.drafts += [drafts.draft_change_set(change_set, self.max_facts) for change_set in self.change_sets]
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

    def _skip(self, tag: str, reason: str) -> None:
        self.skipped.append(Skip(event=tag, reason=reason))

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
            last.add_pass(tag, run, failures)
            last.earlier = last.earlier or earlier
        elif failures:
            for skipped_tag in (*(failure.tag for failure in failures), tag):
                self._skip(skipped_tag, f"a retry that passed: {command.main.label}")
        elif earlier:
            self.drafts.append(drafts.draft_recovery(tag, run, earlier, self.session.recorded))
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

    def _add_plain_pass(self, tag: str, place: int, run: CommandRun) -> None:
        """Take a command that passed and ends no failure: mostly routine."""
        main, output = run.command.main, run.outcome.output
        if run.command.is_check:
            self._skip(tag, f"passes, nothing changed: {main.label}")
        elif main.purpose is Purpose.INSTALL and _INSTALLED.search(output) and "Successfully installed" not in output:
            self._skip(tag, f"no effect: {main.label}")
        elif main.purpose is Purpose.INSTALL:
            self._change_set([]).add(tag, place, install=drafts.install_phrase(run))
        elif main.purpose is Purpose.DEED and ("up-to-date" in output or "up to date" in output.lower()):
            self._skip(tag, f"no effect: {main.label}")
        elif main.label == "git push" and self.commits:
            self.commits[-1].events.append(tag)
        elif main.purpose is Purpose.DEED:
            self.drafts.append(drafts.draft_deed(tag, run))
        else:
            self._skip(tag, f"routine command: {main.label}")

    def _add_commit(self, tag: str, run: CommandRun, failures: list[FailedRun]) -> None:
        commit = drafts.draft_commit(tag, run, self.change_sets, failures, self.session.recorded, self.max_facts)
        self.commits.append(commit)
        self.drafts.append(commit)
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
            self.drafts.append(self.instructions[-1])

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
        made = [msgspec.structs.replace(draft, quote=None) for draft in made if draft.title not in known]
        self.drafts += made
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
            is_kept = draft.closes or _is_in(draft, self.commits) or self.events[self.places[draft.events[0]]].tool_use is None
            if is_kept or draft.type in _ESSENTIAL_TYPES or "gotcha" in draft.concepts:
                narrative = None if draft.facts else draft.narrative
                essential.append(msgspec.structs.replace(draft, narrative=narrative, facts=draft.facts[:1]))
                continue
            for tag in draft.events:
                self._skip(tag, f"too little for verbosity minimal: {draft.type}")
        self.drafts = essential


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
