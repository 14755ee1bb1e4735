"""`cmserver rules`: a project's rules and open decisions as a file of its repository, which pull requests review."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

import click
import msgspec

from cmserver.access.projects import canonical_id
from cmserver.base.atomic_file import write_file
from cmserver.base.errors import CmserverError, Conflict, Forbidden, Invalid, NotFound
from cmserver.base.lookalikes import sanitize_line
from cmserver.cli import api_client
from cmserver.cli.observations import explain_scope, path_of
from cmserver.cli.output import as_called, render_json
from cmserver.client import git_history, rules_file, rules_plan
from cmserver.client.client_folder import read_project
from cmserver.consolidation.wire import StoredObservationOut
from cmserver.observations.model import INSTRUCTION_IMPORTANCE, LISTS, MIN_INSTRUCTION_IMPORTANCE
from cmserver.observations.plain import one_line
from cmserver.observations.wire import ObservationOut, ObservationsOut

_MAX_DECISIONS = 20_000
_TAKEN = "rulesFile"
"""In the metadata of what came from a file: a TakenChange."""
_OPEN_IMPORTANCE = 0.5
_ADDED_TO_METADATA = {"title", "subtitle", "narrative", *LISTS}
"""What the API shows in the metadata of generated observations, and does not store there."""
_LABELS: dict[rules_file.Section, str] = {"rule": "rule", "open": "open decision"}


class RulesReport(msgspec.Struct, rename="camel", kw_only=True):
    """What `rules write` did: how many entries the file has, and whether it was or would be changed."""

    project: str
    rules: int
    open: int
    changed: bool


class _Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A project's rules and open decisions, by number; and what came from a file, whatever became of it, by commit and mark."""

    project: str
    rules: Mapping[int, rules_plan.ServerRule]
    observations: Mapping[int, ObservationOut]
    taken: Mapping[tuple[str, str], int]

    @property
    def title(self) -> str:
        """The project's name as people see it, without credentials of an address."""
        return canonical_id(self.project)

    def render(self) -> bytes:
        entries = [
            (rules_file.RuleEntry(section=rule.section, text=rule.text, number=rule.number), rule.author)
            for rule in self.rules.values()
        ]
        text = rules_file.render_file(entries).encode()
        if len(text) > rules_file.MAX_BYTES:
            raise Invalid(
                f"The rules of {self.title} are larger than {rules_file.MAX_BYTES // 1_000} kB together. Close some of them."
            )
        return text


_folder = click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".")
_project = click.option("--project", help="The project. [default: what hooks call the repository]")


@click.group("rules")
def rules_group() -> None:
    """Keep a project's rules and open decisions in its repository (.cmserver/rules.md), where pull requests review them."""


@rules_group.command("write")
@_folder
@_project
@click.option("--check", is_flag=True, help="Write nothing: show what would change, and exit with 1 if anything does.")
@api_client.api_command
async def write_rules(client: api_client.ApiClient, folder: Path, project: str | None, *, check: bool) -> None:
    """Write the file from what the server has. The same rules give the same file.

    FOLDER is a clone on this machine. [default: the working folder] What was changed in the file by hand and not read yet is not
    overwritten: the command says so. The key needs the scope observations:read.
    """
    memory = await _fetch(client, _name_project(folder, project))
    top = _find_top(folder)
    old = _read_work_tree(top)
    new = memory.render()
    is_same = old is not None and old.replace(b"\r\n", b"\n") == new
    if not check and old is not None and not is_same:
        _refuse_unread(memory, top, old)
    if not check and not is_same:
        target = top / rules_file.PATH
        target.parent.mkdir(exist_ok=True)
        write_file(target, new, mode=0o644)
    counts = [sum(rule.section == section for rule in memory.rules.values()) for section in _LABELS]
    report = RulesReport(project=memory.title, rules=counts[0], open=counts[1], changed=not is_same)
    if client.as_json:
        click.echo(render_json(msgspec.json.encode(report)))
    elif check:
        click.echo("\n".join(_diff(old or b"", new)) if not is_same else f"{rules_file.PATH} says what {memory.title} has.")
    else:
        done = "Nothing to change in" if is_same else "Wrote"
        rest = "" if is_same else " Commit it."
        click.echo(f"{done} {rules_file.PATH}: {report.rules} rules and {report.open} open decisions of {memory.title}.{rest}")
    if check and not is_same:
        raise Conflict(f"{rules_file.PATH} and {memory.title} differ.")


@rules_group.command("read")
@_folder
@_project
@api_client.yes_option
@api_client.api_command
async def read_rules(client: api_client.ApiClient, folder: Path, project: str | None, *, yes: bool) -> None:
    """Take what was committed to the file: new entries, changed texts, and entries that are gone. Shows the changes, and asks.

    FOLDER is a clone on this machine, of whose HEAD the file is read. [default: the working folder] What the server has changed
    since, too, is shown and not taken. Each change can be undone (`cmserver undo`). The key needs the scope observations:write.
    """
    name = _name_project(folder, project)
    memory = await _fetch(client, name)
    top = _find_top(folder)
    raw = _read_head(top)
    work_tree = _read_work_tree(top)
    if work_tree is not None and _split(work_tree) != _split(raw):
        click.echo(f"{rules_file.PATH} differs from what is committed: what is committed counts.", err=True)
    history = _read_history(top)
    plan = _plan(memory, raw, history)
    if not client.as_json:
        for line in _describe(plan):
            click.echo(line)
    if plan.changes:
        count = f"{len(plan.changes)} change{'s' if len(plan.changes) > 1 else ''}"
        api_client.confirm(f"Take {count} into the memory of {memory.title}?", yes=yes)
        memory = await _fetch(client, name)
        if _plan(memory, raw, history) != plan:
            raise Conflict("What is remembered has changed meanwhile. Nothing was taken: run it again.")
        await _take(client, memory, plan.changes)
    if client.as_json:
        click.echo(render_json(msgspec.json.encode(plan)))
    else:
        click.echo(as_called(_conclude(plan, history.commits[0])))
    if plan.conflicts:
        numbers = ", ".join(f"#{conflict.number}" for conflict in plan.conflicts)
        raise Conflict(
            f"Changed in the file and on the server: {numbers}. Nothing was taken of it. Let both say the same "
            "(`cmserver edit`, `cmserver close --dropped`, or the file), then run it again."
        )


# -- the folder


def _name_project(folder: Path, project: str | None) -> str:
    name = project or read_project(folder)
    if name is None:
        raise Invalid("The project of this folder has no name. Name it with --project.")
    if project is None and (top := git_history.find_repository(folder)) is not None and read_project(top) != name:
        raise Invalid(
            f"{canonical_id(name)} is a folder of the repository {sanitize_line(str(top))}, whose file this is. "
            "Run it there, or name the project with --project."
        )
    return name


def _find_top(folder: Path) -> Path:
    top = git_history.find_repository(folder)
    if top is None:
        raise Invalid(f"{folder.resolve()} is in no git repository. The file is kept in one.")
    return top


def _read_work_tree(top: Path) -> bytes | None:
    """The file as it is in the work tree; None without one. Invalid for a link, which may lead out of the repository."""
    target = top / rules_file.PATH
    for path in (target.parent, target):
        if path.is_symlink():
            raise Invalid(f"{path} is a symbolic link, which may lead out of the repository. Remove it.")
    if not target.exists():
        if target.parent.exists() and not target.parent.is_dir():
            raise Invalid(f"{target.parent} is no folder.")
        return None
    if not target.is_file():
        raise Invalid(f"{target} is no file.")
    with target.open("rb") as file:
        return file.read(rules_file.MAX_BYTES + 1)


def _read_head(top: Path) -> bytes:
    if git_history.find_head(top) is None:
        raise Invalid(f"There is no commit yet. {rules_file.PATH} is read as it is committed.")
    raw = git_history.read_committed(top, rules_file.PATH, rules_file.MAX_BYTES)
    if raw is None:
        raise NotFound(f"{rules_file.PATH} is not committed (as a file). `cmserver rules write` makes it.")
    return raw


def _read_history(top: Path) -> rules_plan.FileHistory:
    commits, lines = git_history.read_line_changes(top, rules_file.PATH)
    return rules_plan.FileHistory(commits=commits, lines=lines)


def _refuse_unread(memory: _Memory, top: Path, raw: bytes) -> None:
    """Raise Conflict when the file says something that was not read yet."""
    now = git_history.FileCommit(hash="", author="", committed_at=int(time.time()))
    commits: list[git_history.FileCommit] = [now]
    lines: list[git_history.LineChange] = []
    if git_history.find_head(top) is not None:
        committed = git_history.read_committed(top, rules_file.PATH, rules_file.MAX_BYTES) or b""
        kept = set(_split(raw))
        lines += [git_history.LineChange(commit=now, is_added=False, text=line) for line in _split(committed) if line not in kept]
        earlier = _read_history(top)
        commits, lines = [now, *earlier.commits], [*lines, *earlier.lines]
    plan = _plan(memory, raw, rules_plan.FileHistory(commits=commits, lines=lines))
    unread = rules_plan.RulesPlan(
        changes=plan.changes, conflicts=[conflict for conflict in plan.conflicts if conflict.in_file is not None], behind=0
    )
    if unread.changes or unread.conflicts:
        for line in _describe(unread):
            click.echo(line, err=True)
        raise Conflict(
            f"{rules_file.PATH} says what was not read yet, and was not written. Commit it and run `cmserver rules read`, or take "
            f"it back: `git checkout -- {rules_file.PATH}`."
        )


# -- the server


async def _fetch(client: api_client.ApiClient, project: str) -> _Memory:
    try:
        query = {"project": project, "type": "decision"}
        answer = await client.pages("/v1/observations", "observations", query, limit=_MAX_DECISIONS)
    except NotFound:
        raise NotFound(f"The server has no project {canonical_id(project)}. `cmserver projects create` makes it.") from None
    page = answer.read(ObservationsOut)
    if page.next_cursor is not None:
        raise Invalid(f"{canonical_id(project)} has more than {_MAX_DECISIONS:,} decisions, which no file holds.")
    taken = {row.number: found for row in page.observations if (found := _read_taken(row)) is not None}
    rules = {
        row.number: _read_rule(row, section, taken.get(row.number))
        for row in page.observations
        if (section := _find_section(row)) is not None and _read_text(row)
    }
    return _Memory(
        project=project,
        rules=rules,
        observations={row.number: row for row in page.observations},
        taken={(change.commit, change.mark): number for number, change in taken.items()},
    )


def _find_section(row: ObservationOut) -> rules_file.Section | None:
    """As in a session's index; None for what is no rule and no open decision, or is of the whole team."""
    if row.scope != "project" or row.origin == "git":
        return None
    if row.state == "open":
        return "open"
    return "rule" if row.state is None and row.importance > MIN_INSTRUCTION_IMPORTANCE else None


def _read_rule(row: ObservationOut, section: rules_file.Section, taken: rules_plan.TakenChange | None) -> rules_plan.ServerRule:
    text = _read_text(row)
    author = row.agent or row.actor_id or row.origin
    if taken is not None and taken.mark == rules_file.find_mark(section, text):
        author = git_history.FileCommit(hash=taken.commit, author=taken.author, committed_at=0).name
    return rules_plan.ServerRule(
        number=row.number,
        section=section,
        text=text,
        author=author,
        changed_at=row.updated_at_epoch // 1_000,
        details=max(0, len(row.content) - len(row.title)) if row.title else 0,
        taken=taken,
    )


def _read_text(row: ObservationOut) -> str:
    """What a session's index tells of it, whole."""
    return rules_file.tidy(row.title or row.content)


def _read_taken(row: ObservationOut) -> rules_plan.TakenChange | None:
    try:
        return msgspec.convert(row.metadata[_TAKEN], rules_plan.TakenChange)
    except (KeyError, msgspec.ValidationError):
        return None


async def _take(client: api_client.ApiClient, memory: _Memory, changes: Sequence[rules_plan.RuleChange]) -> None:
    for place, change in enumerate(changes):
        try:
            if change.number is None:
                await _lay_down(client, memory.project, change)
            else:
                await client.patch(path_of(str(change.number)), _correction(memory.observations[change.number], change))
        except Forbidden as error:
            raise explain_scope(error) from error
        except CmserverError as error:
            subject = one_line(change.after or change.before or "", 60) if change.number is None else f"#{change.number}"
            raise type(error)(f"{sanitize_line(subject)}: {error} Taken before: {place}; run it again for the rest.") from error


async def _lay_down(client: api_client.ApiClient, project: str, change: rules_plan.RuleChange) -> None:
    is_rule = change.section_after == "rule"
    body = {
        "projectId": project,
        "type": "decision",
        "narrative": change.after,
        "importance": INSTRUCTION_IMPORTANCE if is_rule else _OPEN_IMPORTANCE,
        "agent": change.commit.name,
        "metadata": _taken_metadata(change),
        "onDuplicate": "suggest",
    }
    answer = await client.post("/v1/observations", body)
    if not is_rule:
        number = answer.read(StoredObservationOut).observation.number
        await client.patch(path_of(str(number)), {"state": "open"})


def _correction(row: ObservationOut, change: rules_plan.RuleChange) -> dict[str, object]:
    stored = row.metadata
    if row.observation_kind != "manual":
        stored = {name: value for name, value in stored.items() if name not in _ADDED_TO_METADATA}
    correction: dict[str, object] = {"metadata": {**stored, **_taken_metadata(change)}}
    if change.after is None:
        return {**correction, "state": "dropped" if change.section_before == "rule" else "done"}
    if change.after != change.before:
        correction |= {"title": None, "subtitle": None, "narrative": change.after, "facts": [], "content": change.after}
    if change.section_after != change.section_before:
        is_rule = change.section_after == "rule"
        correction |= {"state": None, "importance": INSTRUCTION_IMPORTANCE} if is_rule else {"state": "open"}
    return correction


def _taken_metadata(change: rules_plan.RuleChange) -> dict[str, object]:
    mark = rules_file.find_mark(change.section_after, change.after) if change.section_after and change.after else ""
    return {_TAKEN: rules_plan.TakenChange(commit=change.commit.hash, author=change.commit.author, mark=mark)}


# -- what is shown


def _plan(memory: _Memory, raw: bytes, history: rules_plan.FileHistory) -> rules_plan.RulesPlan:
    return rules_plan.plan_rules(rules_file.parse_file(raw), _split(raw), memory.rules, history, memory.taken)


def _split(raw: bytes) -> list[str]:
    return [line.removesuffix("\r") for line in raw.decode(errors="replace").split("\n")]


def _describe(plan: rules_plan.RulesPlan) -> Iterator[str]:
    for change in plan.changes:
        author = sanitize_line(change.commit.name) if change.commit.hash else "not committed"
        before, after = _shown(change.before, change.section_before), _shown(change.after, change.section_after)
        match change.kind:
            case "new":
                yield f"New, by {author}:\n  + {after}"
            case "edited":
                details = f"\n  (with it go {change.details:,} characters of details)" if change.details else ""
                yield f"#{change.number}, by {author}:\n  - {before}\n  + {after}{details}"
            case "removed":
                yield f"#{change.number} is gone, by {author}:\n  - {before}"
    for conflict in plan.conflicts:
        in_file, on_server = "no longer has it (`rules write` puts it back)", "has no such rule of the project (any more)"
        if conflict.in_file is not None:
            in_file = f"says {_shown(conflict.in_file, conflict.section_in_file)}"
        if conflict.on_server is not None:
            on_server = f"says {_shown(conflict.on_server, conflict.section_on_server)}"
        yield f"#{conflict.number} is in conflict:\n  the file {in_file}\n  the server {on_server}"


def _shown(text: str | None, section: rules_file.Section | None) -> str:
    return f"{_LABELS[section]}: {sanitize_line(text)}" if text is not None and section is not None else ""


def _conclude(plan: rules_plan.RulesPlan, commit: git_history.FileCommit) -> str:
    taken = f"Taken: {len(plan.changes)}." if plan.changes else f"Nothing to take of {rules_file.PATH} of {commit.hash[:7]}."
    behind = f" Older than what the server has: {plan.behind} of its entries." if plan.behind else ""
    rest = " `cmserver rules write` brings the file up to date." if plan.changes or plan.behind else ""
    return f"{taken}{behind}{rest}"


def _diff(old: bytes, new: bytes) -> Iterator[str]:
    lines = unified_diff(_split(old), _split(new), rules_file.PATH, f"{rules_file.PATH} as the server has it", n=1, lineterm="")
    return map(sanitize_line, lines)
