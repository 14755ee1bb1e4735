"""What is decided of an event at the door: whether it is stored, whether it gets a job, when that is due, and what turn it is of.

DOOR_RULES is the whole of it, and docs/reference/hooks.md shows it. Of each question the first rule that holds decides. Pure: what
an event has in it is read by a worker, and is the outcome of its job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, cast

import msgspec

from cmserver.access.model import Project
from cmserver.base.settings import Settings
from cmserver.base.text import KEY_MOST
from cmserver.ingest.model import SubagentWords
from cmserver.reading.model import PROMPT_TYPES, REPLY_TYPE
from cmserver.tooluse.model import ToolUse
from cmserver.tooluse.own_tool_use import reads_own_memory
from cmserver.tooluse.typed_prompt import typed_text

LATEST_SECONDS = 30 * 86_400.0
"""What waits for the end of its session is generated after so long even if nothing ever ends it; a lane's release says the same."""
_COMMIT_SECONDS = 60.0
"""How long a commit waits for the end of its turn: what the agent says then belongs to it."""
_CLAUDE_MEM_TOOLS = frozenset({"ListMcpResourcesTool", "SlashCommand", "Skill", "TodoWrite", "AskUserQuestion"})
_NOTES_OF_SESSIONS = "session-memory"
"""In the path of the notes that an agent keeps about its own sessions."""
_STARTING_TOOLS = {"Agent", "Task"}
"""Of Claude Code: their input is what the sub-agent was asked, and their answer names it."""


STORED = "stored"
JOB = "job"
"""Of the questions `row` and `job`: the rule of what no other rule holds for."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a project's events."""

    mode: Literal["per_event", "burst", "at_end"]
    debounce_seconds: float
    allows_gathering: bool = True
    """Whether events may wait for the end of their turn: not where the project or the team has chosen its own debounce."""
    skip_event_types: frozenset[str] = frozenset()
    skip_tools: frozenset[str] = frozenset()


class Timing(NamedTuple):
    """When a new event's lane is due, and how many events one provider call may then serve."""

    delay_seconds: float
    at_most: int | None = None
    waits: bool = False
    """For the end of its session."""
    gathers: bool = False
    """Whether it is understood with its turn: its job is claimed with those of the same turn, and with no others."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """What the door knows of an event that arrives."""

    event_type: str
    tool: ToolUse | None = None
    """Its tool call, where a hook brought one: read once, by the first who asks."""
    tool_name: str | None = None
    """As its payload has it."""
    mcp_server: object = None
    """The server whose tool was called, where the agent names it beside the tool."""
    by_hook: bool = False
    by_claude_mem: bool = False
    is_repetition: bool = False
    """Whether its hook says again what other hooks of the agent say."""
    is_answered: bool = False
    """Whether it is the words of a turn, found in a transcript, that is not waiting for any."""
    is_subagent: bool = False
    """Whether it is the end of a sub-agent's turn."""
    is_private: bool = False
    """Whether the newest prompt of its session was private as a whole."""
    is_excluded: bool = False
    """Whether its project is archived."""
    asks_for_job: bool = True
    is_waited_for: bool = False
    has_session: bool = False
    prompt: str | None = None
    """What the user typed of a prompt."""
    subagent: SubagentWords | None = None
    policy: Policy = Policy(mode="burst", debounce_seconds=0)
    gather_seconds: float = 0
    gathers_turns: bool = True
    """Whether the server gathers whole turns: where rules alone word observations, and no model is called."""

    @property
    def is_prompt(self) -> bool:
        return self.event_type in PROMPT_TYPES

    @property
    def is_reply(self) -> bool:
        return self.event_type == REPLY_TYPE


DoorQuestion = Literal["row", "job", "due", "turn"]


class DoorRule(msgspec.Struct, frozen=True):
    """One row of the table: what is decided of events of which it holds, and why."""

    name: str
    condition: str
    holds: Callable[[Arrival], bool]
    outcome: str
    reason: str
    timing: Callable[[Arrival], Timing] = lambda event: Timing(event.policy.debounce_seconds)
    """When it is due, of the question `due`."""


def _gather(arrival: Arrival, seconds: float) -> Timing:
    return Timing(max(arrival.policy.debounce_seconds, seconds), gathers=arrival.gathers_turns)


DOOR_RULES: dict[DoorQuestion, tuple[DoorRule, ...]] = {
    "row": (
        DoorRule(
            "repetition",
            "A hook that repeats what other hooks of the agent say (the tables above name them)",
            lambda event: event.is_repetition,
            "not stored",
            "One act is one event.",
        ),
        DoorRule(
            "own_memory",
            "A tool call that only reads our memory: our MCP tools, `hook recall`, commands and requests that read here; and "
            "`mine` and `remember --for me`",
            lambda event: event.tool is not None and reads_own_memory(event.tool, event.mcp_server),
            "not stored",
            "What was remembered is not remembered again because somebody read it, and what is a person's alone is no event of the "
            "team's.",
        ),
        DoorRule(
            "answered",
            "`TranscriptEnd` of a turn that has its last words, or that nobody knows",
            lambda event: event.is_answered,
            "not stored",
            "The agent's own hook has brought them.",
        ),
        DoorRule(
            "tool_excluded",
            f"On claude-mem's paths, a call of {', '.join(f'`{tool}`' for tool in sorted(_CLAUDE_MEM_TOOLS))}",
            lambda event: event.by_claude_mem and event.tool is not None and event.tool.tool in _CLAUDE_MEM_TOOLS,
            "not stored",
            "They are about the agent, and not about the work.",
        ),
        DoorRule(
            "session_memory_meta",
            f"On claude-mem's paths, a call on a file with `{_NOTES_OF_SESSIONS}` in its path",
            lambda event: (
                event.by_claude_mem and event.tool is not None and any(_NOTES_OF_SESSIONS in it for it in event.tool.paths)
            ),
            "not stored",
            "The agent's notes about its own sessions are no work.",
        ),
        DoorRule(
            "subagent_context",
            "On claude-mem's paths, the end of a sub-agent's turn",
            lambda event: event.by_claude_mem and event.is_subagent,
            "not stored",
            "It would complete the turn of the session.",
        ),
        DoorRule(
            "private",
            "On claude-mem's paths, anything after a prompt that stands in `<private>` as a whole, until the next prompt",
            lambda event: event.is_private,
            "not stored",
            "The user wants nothing of that turn kept.",
        ),
        DoorRule(
            "project_excluded",
            "On claude-mem's paths, an event of an archived project",
            lambda event: event.is_excluded,
            "not stored",
            "An archived project takes nothing. Other doors refuse the event with 404 or 409.",
        ),
        DoorRule(STORED, "Anything else", lambda _: True, "stored", "What an agent did may be asked for later."),
    ),
    "job": (
        DoorRule(
            "not_asked",
            "`generate=false` in the request",
            lambda event: not event.asks_for_job,
            "no job",
            "Its sender wants it stored only.",
        ),
        DoorRule(
            "says_nothing",
            "A hook's event that is neither a prompt, nor a reply, nor a tool use",
            lambda event: event.by_hook and event.tool is None and not (event.is_prompt or event.is_reply),
            "no job",
            "It says that something began or ended, and nothing that was done.",
        ),
        DoorRule(
            "event_type_skipped",
            "A type in `skipEventTypes` of the project or its team",
            lambda event: event.event_type in event.policy.skip_event_types,
            "no job",
            "The team wants nothing made of such events.",
        ),
        DoorRule(
            "tool_skipped",
            "A tool in `skipTools` of the project or its team, by its exact name",
            lambda event: event.tool_name in event.policy.skip_tools,
            "no job",
            "The team wants nothing made of such calls.",
        ),
        DoorRule(
            JOB, "Anything else", lambda _: True, "a job", "A worker reads what is in it; the job's outcome says what it found."
        ),
    ),
    "due": (
        DoorRule(
            "waited_for",
            "`wait=true` in the request",
            lambda event: event.is_waited_for,
            "at once",
            "Somebody waits for the answer.",
            lambda event: Timing(0, 1 if event.policy.mode == "per_event" else None),
        ),
        DoorRule(
            "per_event",
            "The policy's mode is `per_event`",
            lambda event: event.policy.mode == "per_event",
            "at once, in a call of its own",
            "The team wants each event by itself.",
            lambda _: Timing(0, 1),
        ),
        DoorRule(
            "at_end",
            "The policy's mode is `at_end`, and the event is of a session",
            lambda event: event.policy.mode == "at_end" and event.has_session,
            "at the session's end, in 30 days at the latest",
            "The team wants whole sessions. Without a session there is no end to wait for.",
            lambda _: Timing(LATEST_SECONDS, None, True),
        ),
        DoorRule(
            "own_debounce",
            "The policy has a `debounceSeconds` of its own",
            lambda event: not event.policy.allows_gathering,
            "after that",
            "The team's word stands above the server's.",
        ),
        DoorRule(
            "words_for_model",
            "A hook's prompt or reply in a session, where a model is called",
            lambda event: event.by_hook and event.has_session and not event.gathers_turns and (event.is_prompt or event.is_reply),
            "after CMSERVER_GENERATION_GATHER_SECONDS, with the burst that follows or goes before",
            "Words are understood beside what was done. A model's calls are small, so nothing else waits.",
            lambda event: _gather(event, event.gather_seconds),
        ),
        DoorRule(
            "commit",
            "A hook's `git commit` in a session, where rules alone word observations",
            lambda event: (
                event.by_hook
                and event.has_session
                and event.gathers_turns
                and event.tool is not None
                and "git commit" in event.tool.command
            ),
            "at the turn's end, in 60 seconds at the latest",
            "After a commit the agent soon says what it was for, and others may wait for what was committed.",
            lambda event: _gather(event, min(event.gather_seconds, _COMMIT_SECONDS)),
        ),
        DoorRule(
            "gathered",
            "Another event of a hook in a session, but a reply, where rules alone word observations",
            lambda event: event.by_hook and event.has_session and event.gathers_turns and not event.is_reply,
            "at the turn's end, after CMSERVER_GENERATION_GATHER_SECONDS at the latest",
            "Rules understand a turn as a whole, and cost nothing.",
            lambda event: _gather(event, event.gather_seconds),
        ),
        DoorRule(
            "last_words",
            "A hook's reply in a session, where rules alone word observations",
            lambda event: event.by_hook and event.has_session and event.gathers_turns,
            "with its turn, after CMSERVER_GENERATION_DEBOUNCE_SECONDS at the latest",
            "It ends the turn, which is then understood as a whole.",
            lambda event: _gather(event, 0),
        ),
        DoorRule(
            "burst",
            "Anything else",
            lambda _: True,
            "after CMSERVER_GENERATION_DEBOUNCE_SECONDS",
            "What follows shortly is worded together.",
        ),
    ),
    "turn": (
        DoorRule(
            "no_session",
            "An event without a session",
            lambda event: not event.has_session,
            "no turn",
            "Turns are numbered in their session.",
        ),
        DoorRule(
            "program_prompt",
            "A prompt of which the user typed nothing: a program's tags and notes alone, such as a task's notification",
            lambda event: event.is_prompt and event.prompt is None,
            "no turn",
            "The program says it in the user's place.",
        ),
        DoorRule(
            "prompt",
            "Any other prompt",
            lambda event: event.is_prompt,
            "begins a turn, with what the user typed",
            "What programs put around it in tags stays in the event.",
        ),
        DoorRule(
            "reply",
            "The agent's last words (`assistant_message`)",
            lambda event: event.is_reply,
            "completes the session's turn",
            "A turn is a prompt and what answers it.",
        ),
        DoorRule(
            "subagent",
            "What a sub-agent was asked, or said last",
            lambda event: event.subagent is not None,
            "a turn of the sub-agent's own",
            "Its words are not those of the session.",
        ),
        DoorRule("no_words", "Anything else", lambda _: True, "no turn", "It belongs to the turn in which it happens."),
    ),
}


def find_rule(question: DoorQuestion, arrival: Arrival) -> DoorRule:
    """The rule that decides: the first that holds."""
    return next(rule for rule in DOOR_RULES[question] if rule.holds(arrival))


def read_prompt(payload: object) -> str | None:
    """What the user typed of a prompt; None for one that is a program's as a whole."""
    fields = read_object(payload)
    texts = [payload] if isinstance(payload, str) else [fields.get(name) for name in ("prompt", "text", "content")]
    prompt = next((text for text in texts if isinstance(text, str)), "")
    return typed_text(prompt) or None


def read_text(payload: object, name: str) -> str | None:
    """The text in this field of the payload; None when there is none."""
    text = read_object(payload).get(name)
    return text if isinstance(text, str) and text else None


def read_object(value: object) -> dict[str, object]:
    """The value if it is an object, else an empty one."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def read_subagent_words(event_type: str, payload: object, metadata: dict[str, object]) -> SubagentWords | None:
    """What the event says of a sub-agent's turn; None for any other event. Its agent's id is in the metadata."""
    fields = read_object(payload)
    agent_id = _read_id(metadata, "agent_id")
    if event_type == "tool_use" and _read_words(fields, "tool_name") in _STARTING_TOOLS:
        started_id = _read_id(read_object(fields.get("tool_response")), "agentId")
        prompt = _read_words(read_object(fields.get("tool_input")), "prompt")
        return SubagentWords(agent_id=started_id, prompt=prompt) if started_id and prompt else None
    if event_type == "machine_prompt" and agent_id and (prompt := _read_words(fields, "prompt")):
        return SubagentWords(agent_id=agent_id, prompt=prompt)
    if event_type == "subagent_stop" and agent_id and (reply := _read_words(fields, "last_assistant_message")):
        return SubagentWords(agent_id=agent_id, reply=reply)
    return None


def _read_id(fields: dict[str, object], name: str) -> str | None:
    """The id; None for one that is too long to be one, and for an index."""
    text = _read_words(fields, name)
    return text if text is not None and len(text) <= KEY_MOST else None


def _read_words(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value.strip() else None


def gather_seconds(settings: Settings) -> float:
    """How long events of hooks wait for the end of their turn at most."""
    return settings.generation_gather_seconds if settings.generation_debounce_seconds > 0 else 0


def _calls_no_model(settings: Settings) -> bool:
    """Whether no model is ever called: then whole turns are gathered. A model's calls are smaller."""
    return {name.strip() for name in settings.provider.split(",")} == {"offline"}


def gathers_turns(settings: Settings, project: Project | None = None) -> bool:
    """Whether events of hooks, of the project if named, wait for the end of their turn, which then makes them due."""
    policy = resolve_policy(project, settings.generation_debounce_seconds) if project else None
    is_allowed = policy is None or (policy.mode == "burst" and policy.allows_gathering)
    return gather_seconds(settings) > 0 and _calls_no_model(settings) and is_allowed


def resolve_policy(project: Project, debounce_seconds: float) -> Policy:
    """The project's preferences, else its team's, else the settings. Skip rules add up."""
    own, team = project.policy, project.team_policy
    debounce = team.debounce_seconds if own.debounce_seconds is None else own.debounce_seconds
    return Policy(
        mode=own.mode or team.mode or "burst",
        debounce_seconds=debounce_seconds if debounce is None else debounce,
        allows_gathering=debounce is None,
        skip_event_types=frozenset([*team.skip_event_types, *own.skip_event_types]),
        skip_tools=frozenset([*team.skip_tools, *own.skip_tools]),
    )
