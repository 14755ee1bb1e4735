"""`cmserver rules`: a project's rules and open decisions as a file of its repository, which pull requests review."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
from cmserver.observations.model import INSTRUCTION_IMPORTANCE, MIN_INSTRUCTION_IMPORTANCE, compose
from cmserver.observations.plain import one_line
from cmserver.observations.wire import IN_METADATA, ObservationOut, ObservationsOut, OneObservationOut

_MAX_DECISIONS = 20_000
_SOURCE = "rulesFile"
"""In the metadata of what came from a file: a RuleSource."""
_OPEN_IMPORTANCE = 0.5
_LABELS: dict[rules_file.Section, str] = {"rule": "rule", "open": "open decision"}


class RulesReport(msgspec.Struct, rename="camel", kw_only=True):
    """What `rules write` did: how many entries the file has, and whether it was or would be changed."""

    project: str
    rules: int
    open: int
    changed: bool


class _Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A project's rules and open decisions, all its decisions, each by number; and commit and mark of those from a file."""

    project: str
    rules: Mapping[int, rules_plan.ServerRule]
    observations: Mapping[int, ObservationOut]
    sources: AbstractSet[tuple[str, str]]

    @property
    def title(self) -> str:
        """The project's name as people see it, without credentials of an address."""
        return canonical_id(self.project)

    def render(self) -> bytes:
        entries = [
            (rules_file.RuleEntry(section=rule.section, text=rule.text, number=rule.number), rule.author)
            for rule in self.rules.values()
        ]
        text = rules_file.render_file(self.title, entries).encode()
        if len(text) > rules_file.MAX_BYTES:
            raise Invalid(
                f"The rules of {self.title} are larger than {rules_file.MAX_BYTES // 1_000} kB together. Close some of them."
            )
        return text


_folder = click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".")
_project = click.option("--project", help="The project. [default: what hooks call the repository]")


@click.group("rules")
def rules_group() -> None:
    """Keep a project's rules and open decisions in its repository (.cmserver/rules.md), where pull requests review them; or say yes
    or no to those that a model or an agent's tool wrote, in a team that asks (`cmserver teams approve-rules`).
    """


@rules_group.command("write")
@_folder
@_project
@click.option("--check", is_flag=True, help="Write nothing: show what would change, and exit with 1 if anything does.")
@api_client.api_command
async def write_rules(client: api_client.ApiClient, folder: Path, project: str | None, *, check: bool) -> None:
    """Write the file from what the server has. The same rules give the same file.

    FOLDER is a clone on this machine. [default: the working folder] What was changed in the file and not read yet is not
    overwritten: the command says so. The key needs the scope observations:read.
    """
    memory = await _fetch(client, _name_project(folder, project))
    top = _find_top(folder)
    old = _read_work_tree(top)
    _require_project(memory, old)
    new = memory.render()
    is_same = old is not None and old.replace(b"\r\n", b"\n") == new
    if not is_same and not check:
        if old is not None:
            _require_read(memory, top, old)
        target = top / rules_file.PATH
        target.parent.mkdir(exist_ok=True)
        write_file(target, new, mode=0o644)
    if not is_same:
        for line in _diff(old or b"", new):
            click.echo(line, err=client.as_json)
    counts = [sum(rule.section == section for rule in memory.rules.values()) for section in _LABELS]
    report = RulesReport(project=memory.title, rules=counts[0], open=counts[1], changed=not is_same)
    if client.as_json:
        click.echo(render_json(msgspec.json.encode(report)))
    elif is_same or not check:
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
    since, too, is shown and not taken. `cmserver undo` takes a change back, `cmserver close --dropped` a new rule. The key needs
    the scope observations:write.
    """
    name = _name_project(folder, project)
    memory = await _fetch(client, name)
    top = _find_top(folder)
    raw = _read_head(top)
    _require_project(memory, raw)
    work_tree = _read_work_tree(top)
    if work_tree is not None and _split(work_tree) != _split(raw):
        click.echo(f"{rules_file.PATH} differs from what is committed: what is committed counts.", err=True)
    history = _read_history(top)
    plan = _plan(memory, raw, history)
    for line in _describe(plan):
        click.echo(line, err=client.as_json)
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
        click.echo(as_called(_render_result(plan, history.commits[0])))
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
        raise Invalid(f"{sanitize_line(str(folder.resolve()))} is in no git repository. The file is kept in one.")
    return top


def _read_work_tree(top: Path) -> bytes | None:
    """The file as it is in the work tree; None without one. Invalid for a link, which may lead out of the repository."""
    target = top / rules_file.PATH
    for path in (target.parent, target):
        if path.is_symlink():
            raise Invalid(f"{sanitize_line(str(path))} is a symbolic link, which may lead out of the repository. Remove it.")
    if not target.exists():
        if target.parent.exists() and not target.parent.is_dir():
            raise Invalid(f"{sanitize_line(str(target.parent))} is no folder.")
        return None
    if not target.is_file():
        raise Invalid(f"{sanitize_line(str(target))} is no file.")
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
    if git_history.is_shallow(top):
        raise Invalid("The clone is shallow: who wrote a line is not known in it. Run `git fetch --unshallow` first.")
    commits, lines = git_history.read_line_changes(top, rules_file.PATH)
    return rules_plan.FileHistory(commits=commits, lines=lines)


def _require_project(memory: _Memory, raw: bytes | None) -> None:
    """Raise Conflict for a file that says it is of another project."""
    named = rules_file.find_project(raw) if raw is not None else None
    if named is not None and named != rules_file.render_project(memory.title):
        raise Conflict(
            f"{rules_file.PATH} is of the project {sanitize_line(named[:200])}, not of {memory.title}. Name it with --project, "
            "or remove the file to begin anew."
        )


def _require_read(memory: _Memory, top: Path, raw: bytes) -> None:
    """Raise Conflict when the file says something that was not read yet, or was written by another server."""
    entries = rules_file.parse_file(raw)
    numbers = {entry.number for entry in entries if entry.number is not None}
    if numbers and not numbers & memory.observations.keys():
        raise Conflict(
            f"No number in {rules_file.PATH} is one of {memory.title} on this server: another server or team wrote it. "
            "Nothing was written. Remove the file to begin anew."
        )
    now = git_history.FileRevision(hash="", author="", committed_at=int(time.time()))
    commits: list[git_history.FileRevision] = [now]
    lines: list[git_history.LineChange] = []
    if git_history.find_head(top) is not None:
        committed = git_history.read_committed(top, rules_file.PATH, rules_file.MAX_BYTES) or b""
        kept = set(_split(raw))
        lines += [git_history.LineChange(commit=now, is_added=False, text=line) for line in _split(committed) if line not in kept]
        earlier = _read_history(top)
        commits, lines = [now, *earlier.commits], [*lines, *earlier.lines]
    plan = _plan(memory, raw, rules_plan.FileHistory(commits=commits, lines=lines))
    unread = msgspec.structs.replace(plan, conflicts=[conflict for conflict in plan.conflicts if not conflict.is_back])
    if unread.changes or unread.conflicts:
        for line in _describe(unread):
            click.echo(line, err=True)
        raise Conflict(
            f"{rules_file.PATH} says what was not read yet, and was not written. Commit it and run `cmserver rules read`, or take "
            f"it back: `git checkout -- {rules_file.PATH}`."
        )
    for conflict in plan.conflicts:
        click.echo(f"#{conflict.number} was taken out of the file, and the server has it again. It is put back.", err=True)


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
    sources = {row.number: found for row in page.observations if (found := _read_source(row)) is not None}
    rules = {
        row.number: _read_rule(row, section, sources.get(row.number))
        for row in page.observations
        if (section := _find_section(row)) is not None and _read_text(row)
    }
    return _Memory(
        project=project,
        rules=rules,
        observations={row.number: row for row in page.observations},
        sources={(source.commit, source.mark) for source in sources.values()},
    )


def _find_section(row: ObservationOut) -> rules_file.Section | None:
    """As in a session's index; None for what is no rule and no open decision, or is of the whole team."""
    if row.scope != "project" or row.origin == "git":
        return None
    if row.state == "open":
        return "open"
    return "rule" if row.state is None and row.importance > MIN_INSTRUCTION_IMPORTANCE else None


def _read_rule(row: ObservationOut, section: rules_file.Section, source: rules_plan.RuleSource | None) -> rules_plan.ServerRule:
    text = _read_text(row)
    author = row.agent or row.actor_id or row.origin
    if source is not None and source.mark == rules_file.find_mark(section, text):
        author = git_history.FileRevision(hash=source.commit, author=source.author, committed_at=0).name
    return rules_plan.ServerRule(
        number=row.number,
        section=section,
        text=text,
        author=author,
        changed_at=row.updated_at_epoch // 1_000,
        details=_count_details(row, text),
        source=source,
    )


def _read_text(row: ObservationOut) -> str:
    """What a session's index tells of it, whole."""
    return rules_file.tidy(row.title or row.content)


def _count_details(row: ObservationOut, text: str) -> int:
    """How many characters the observation has beside its text, which an edit does not keep."""
    details = {row.subtitle or "", row.narrative or "", *row.facts}
    if row.content != compose(row.title, row.subtitle, row.narrative, row.facts):
        details.add(row.content)
    return sum(len(detail) for detail in details if rules_file.tidy(detail) != text)


def _read_source(row: ObservationOut) -> rules_plan.RuleSource | None:
    try:
        return msgspec.convert(row.metadata[_SOURCE], rules_plan.RuleSource)
    except (KeyError, msgspec.ValidationError):
        return None


async def _take(client: api_client.ApiClient, memory: _Memory, changes: Sequence[rules_plan.RuleChange]) -> None:
    for place, change in enumerate(changes):
        try:
            if change.number is None:
                await _lay_down(client, memory, change)
            else:
                await _correct(client, memory.observations[change.number], change)
        except Forbidden as error:
            raise explain_scope(error) from error
        except CmserverError as error:
            subject = one_line(change.after or change.before or "", 60) if change.number is None else f"#{change.number}"
            raise type(error)(f"{sanitize_line(subject)}: {error} Taken before: {place}; run it again for the rest.") from error


async def _lay_down(client: api_client.ApiClient, memory: _Memory, change: rules_plan.RuleChange) -> None:
    is_rule = change.section_after == "rule"
    number = None if is_rule else _find_unfinished(memory, change)
    if number is None:
        body = {
            "projectId": memory.project,
            "type": "decision",
            "narrative": change.after,
            "importance": INSTRUCTION_IMPORTANCE if is_rule else _OPEN_IMPORTANCE,
            "agent": change.commit.name,
            "metadata": _source_metadata(change) if is_rule else {},
            "onDuplicate": "keep",
        }
        number = (await client.post("/v1/observations", body)).read(StoredObservationOut).observation.number
    if not is_rule:
        await client.patch(path_of(str(number)), {"state": "open", "metadata": _source_metadata(change)})


def _find_unfinished(memory: _Memory, change: rules_plan.RuleChange) -> int | None:
    """The number of what an interrupted `read` stored of this open decision, without opening it."""
    for row in memory.observations.values():
        is_untouched = (row.version, row.state, row.metadata) == (1, None, {})
        if is_untouched and row.agent == change.commit.name and _read_text(row) == change.after:
            return row.number
    return None


async def _correct(client: api_client.ApiClient, row: ObservationOut, change: rules_plan.RuleChange) -> None:
    """Change the observation, unless it was changed since it was shown."""
    path = path_of(str(row.number))
    if (await client.get(path)).read(OneObservationOut).observation.version != row.version:
        raise Conflict("It has changed meanwhile.")
    await client.patch(path, _correction(row, change))


def _correction(row: ObservationOut, change: rules_plan.RuleChange) -> dict[str, object]:
    stored = row.metadata
    if row.observation_kind != "manual":
        stored = {name: value for name, value in stored.items() if name not in IN_METADATA}
    correction: dict[str, object] = {"metadata": {**stored, **_source_metadata(change)}}
    if change.after is None:
        return {**correction, "state": "dropped" if change.section_before == "rule" else "done"}
    if change.after != change.before:
        correction |= {"title": None, "subtitle": None, "narrative": change.after, "facts": [], "content": change.after}
    if change.section_after != change.section_before:
        is_rule = change.section_after == "rule"
        correction |= {"state": None, "importance": INSTRUCTION_IMPORTANCE} if is_rule else {"state": "open"}
    return correction


def _source_metadata(change: rules_plan.RuleChange) -> dict[str, object]:
    mark = rules_file.find_mark(change.section_after, change.after) if change.section_after and change.after else ""
    commit = change.commit
    return {_SOURCE: rules_plan.RuleSource(commit=commit.hash, author=commit.author, mark=mark, mark_before=change.mark or "")}


# -- what is shown


def _plan(memory: _Memory, raw: bytes, history: rules_plan.FileHistory) -> rules_plan.RulesPlan:
    return rules_plan.plan_rules(rules_file.parse_file(raw), _split(raw), memory.rules, history, memory.sources)


def _split(raw: bytes) -> list[str]:
    return [line.removesuffix("\r") for line in raw.decode(errors="replace").split("\n")]


def _describe(plan: rules_plan.RulesPlan) -> Iterator[str]:
    for change in plan.changes:
        author = sanitize_line(change.commit.name) if change.commit.hash else "not committed"
        before, after = _render_entry(change.before, change.section_before), _render_entry(change.after, change.section_after)
        match change.kind:
            case "new":
                yield f"New, by {author}:\n  + {after}"
            case "edited":
                details = f"\n  - and {change.details:,} characters of details beside it" if change.details else ""
                yield f"#{change.number}, by {author}:\n  - {before}\n  + {after}{details}"
            case "removed":
                yield f"#{change.number} is gone, by {author}:\n  - {before}"
    for conflict in plan.conflicts:
        rest = " (`rules write` puts it back)" if conflict.is_back else ""
        in_file, on_server = f"no longer has it{rest}", "has no such rule of the project (any more)"
        if conflict.in_file is not None:
            in_file = f"says {_render_entry(conflict.in_file, conflict.section_in_file)}"
        if conflict.on_server is not None:
            on_server = f"says {_render_entry(conflict.on_server, conflict.section_on_server)}"
        yield f"#{conflict.number} is in conflict:\n  the file {in_file}\n  the server {on_server}"


def _render_entry(text: str | None, section: rules_file.Section | None) -> str:
    return f"{_LABELS[section]}: {sanitize_line(text)}" if text is not None and section is not None else ""


def _render_result(plan: rules_plan.RulesPlan, commit: git_history.FileRevision) -> str:
    taken = f"Taken: {len(plan.changes)}." if plan.changes else f"Nothing to take of {rules_file.PATH} of {commit.hash[:7]}."
    outdated = f" Older than what the server has: {plan.outdated} of its entries." if plan.outdated else ""
    rest = " `cmserver rules write` brings the file up to date." if plan.changes or plan.outdated else ""
    return f"{taken}{outdated}{rest}"


def _diff(old: bytes, new: bytes) -> Iterator[str]:
    lines = unified_diff(_split(old), _split(new), rules_file.PATH, f"{rules_file.PATH} as the server has it", n=1, lineterm="")
    return map(sanitize_line, lines)
