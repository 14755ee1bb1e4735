"""The provider claude-cli with a program that stands in for `claude`: it notes how it was started, and plays answers and faults.

What the real program does with the same options is seen in tests/real_agents/test_claude_program.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import cast
from zoneinfo import ZoneInfo

import msgspec
import pytest

from cmserver.base.errors import Invalid
from cmserver.models.providers import claude_cli
from cmserver.models.providers.claude_cli import seconds_until_reset
from cmserver.models.providers.model import Completion, FailureKind, Prompt, ProviderError, ProviderSettings
from cmserver.models.providers.prompts.render import render
from cmserver.models.providers.prompts.schema import SCHEMAS
from cmserver.models.providers.registry import load
from tests.reading.events import read_call
from tests.table import try_rows
from tests.timeouts import ENOUGH_SECONDS, until

PAYLOAD = "what-nobody-else-may-see"
PROMPT = Prompt(
    kind="observations",
    project="orders",
    events=[read_call("Bash", {"command": PAYLOAD}, at=1)],
)
ANSWER: dict[str, object] = {"observations": [], "skipped": [{"event": "e1", "reason": "routine"}]}
USAGE = {"input_tokens": 11, "cache_creation_input_tokens": 22, "cache_read_input_tokens": 33, "output_tokens": 44}
RESULT: dict[str, object] = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "api_error_status": None,
    "result": json.dumps(ANSWER),
    "structured_output": ANSWER,
    "usage": {**USAGE, "service_tier": "standard", "iterations": []},
    "modelUsage": {"claude-haiku-5-5": {"costUSD": 0.1}},
    "total_cost_usd": 0.1,
    "stop_reason": "tool_use",
}

_STAND_IN = """#!{python} -IS
import json, os, subprocess, sys
here = {here!r}
play = json.load(open(here + "/play.json"))
note = dict(argv=sys.argv[1:], env=dict(os.environ), cwd=os.getcwd(), files=os.listdir(), leads=os.getpgid(0) == os.getpid())
if play["reads"]:
    note["stdin"] = sys.stdin.read()
json.dump(note, open(here + "/note.json", "w"))
if play["stays"]:
    import signal
    if play["stays"] == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fifo = os.open(here + "/fifo", os.O_WRONLY)  # open as long as any of them lives
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    started = subprocess.Popen([sys.executable, "-IS", "-c", child], stdout=subprocess.PIPE, pass_fds=[fifo])
    started.stdout.readline()
    os.write(fifo, b"ready")
    started.wait()
sys.stdout.write(play["output"])
sys.stdout.flush()
sys.stderr.write(play["errors"])
if play["signal"]:
    os.kill(os.getpid(), play["signal"])
sys.exit(play["code"])
"""


class StandIn:
    """The program, and what it noted of its last run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "claude"
        self.path.write_text(_STAND_IN.format(python=sys.executable, here=str(folder)))
        self.path.chmod(0o755)
        self.plays(output=json.dumps(RESULT))

    def plays(self, **play: object) -> None:
        usual = {"output": "", "errors": "", "code": 0, "signal": 0, "stays": "", "reads": True}
        (self.folder / "play.json").write_text(json.dumps({**usual, **play}))

    def answers(self, **fields: object) -> None:
        result = {**RESULT, **fields}
        self.plays(output=json.dumps(result), code=1 if result["is_error"] else 0)

    @property
    def note(self) -> dict[str, object]:
        return cast("dict[str, object]", json.loads((self.folder / "note.json").read_text()))

    def folders_left(self) -> list[str]:
        return [str(path) for path in Path(cast("str", self.note["cwd"])).parent.iterdir()]

    @property
    def argv(self) -> list[str]:
        return cast("list[str]", self.note["argv"])

    @property
    def env(self) -> dict[str, str]:
        return cast("dict[str, str]", self.note["env"])

    def option(self, name: str) -> str:
        return self.argv[self.argv.index(name) + 1]

    async def asked(self, prompt: Prompt = PROMPT, **options: object) -> Completion:
        usual: dict[str, object] = {"name": "claude-cli", "claude_program": str(self.path), "timeout_seconds": 30.0}
        return await load(msgspec.convert({**usual, **options}, ProviderSettings)).complete(prompt)

    async def failure(self, **options: object) -> ProviderError:
        with pytest.raises(ProviderError) as failed:
            await self.asked(PROMPT, **options)
        return failed.value


@pytest.fixture
def claude(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)


# How it is started


async def test_what_was_observed_goes_in_by_standard_input_and_stands_in_no_argument(claude: StandIn):
    rendered = render(PROMPT, "json")

    await claude.asked()

    assert cast("str", claude.note["stdin"]).endswith(rendered.user)
    assert PAYLOAD in rendered.user
    assert PAYLOAD not in str(claude.argv) + str(claude.env)
    assert claude.option("--system-prompt") == rendered.system


async def test_text_that_begins_with_a_slash_is_no_command(claude: StandIn, monkeypatch: pytest.MonkeyPatch):
    def slash(_prompt: Prompt, _form: str) -> object:
        return msgspec.structs.replace(render(PROMPT, "json"), user="/compact")

    monkeypatch.setattr(claude_cli, "render", slash)

    await claude.asked()

    stdin = cast("str", claude.note["stdin"])
    assert stdin.endswith("/compact")
    assert not stdin.lstrip().startswith("/")


async def test_it_may_use_nothing_and_call_nothing(claude: StandIn):
    await claude.asked()

    assert claude.option("--tools") == ""
    assert claude.option("--setting-sources") == ""
    assert json.loads(claude.option("--settings")) == {"disableAllHooks": True, "permissions": {"deny": ["Read"]}}
    assert {"-p", "--strict-mcp-config", "--disable-slash-commands", "--no-session-persistence"} <= set(claude.argv)
    assert claude.env["CLAUDE_CODE_DISABLE_ATTACHMENTS"] == "1"


async def test_it_is_held_to_the_form_and_the_length_of_the_answer(claude: StandIn):
    await claude.asked(Prompt(kind="summary", project="orders"), answer_max_tokens=1234)

    assert json.loads(claude.option("--json-schema")) == SCHEMAS["summary"]
    assert claude.option("--output-format") == "json"
    assert claude.env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "1234"
    assert claude.env["CLAUDE_CODE_MAX_RETRIES"] == "0"


async def test_it_asks_for_haiku_unless_a_model_is_named(claude: StandIn):
    await claude.asked()
    first = claude.option("--model")
    await claude.asked(model="claude-sonnet-5-5")

    assert (first, claude.option("--model")) == ("haiku", "claude-sonnet-5-5")


async def test_it_runs_in_an_empty_folder_of_its_own_that_is_gone_afterwards(claude: StandIn):
    await claude.asked()
    first = cast("str", claude.note["cwd"])
    files, leads = claude.note["files"], claude.note["leads"]
    await claude.asked()

    assert files == []
    assert leads is True
    assert claude.note["cwd"] != first
    assert first not in claude.folders_left()


async def test_what_is_for_cmserver_or_for_another_session_of_claude_is_not_handed_on(
    claude: StandIn, monkeypatch: pytest.MonkeyPatch
):
    ours = ["CMSERVER_DATABASE_URL", "CMSERVER_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY_FILE", "OPENAI_API_KEY"]
    another = ["CLAUDECODE", "CLAUDE_PROJECT_DIR", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_PLUGIN_ROOT"]
    its_own = ["CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "ANTHROPIC_BASE_URL", "HTTPS_PROXY"]
    for name in [*ours, *another, *its_own]:
        monkeypatch.setenv(name, "set")

    await claude.asked()

    assert {name for name in [*ours, *another] if name in claude.env} == set()
    assert {name for name in its_own if claude.env.get(name) != "set"} == set()


# What it answers


async def test_the_structured_answer_comes_back_with_what_was_used(claude: StandIn):
    completion = await claude.asked()

    assert json.loads(completion.text) == ANSWER
    assert completion.model == "claude-haiku-5-5"
    assert (completion.input_tokens, completion.cache_write_tokens, completion.cache_read_tokens) == (11, 22, 33)
    assert (completion.output_tokens, completion.truncated) == (44, False)


async def test_no_price_is_named_because_a_subscription_has_none(claude: StandIn):
    assert (await claude.asked()).cost_usd is None


@pytest.mark.parametrize("structured", [pytest.param(None, id="null"), pytest.param(msgspec.UNSET, id="left out")])
async def test_words_are_the_answer_where_there_is_no_structured_one(claude: StandIn, structured: object):
    result = {**RESULT, "result": "<observation events='e1'/>", "structured_output": structured}
    claude.plays(output=json.dumps({name: value for name, value in result.items() if value is not msgspec.UNSET}))

    assert (await claude.asked()).text == "<observation events='e1'/>"


async def test_an_answer_that_speaks_of_limits_is_an_answer(claude: StandIn):
    answer = {"summary": {"request": "You've hit your limit · resets 3pm"}}
    claude.answers(structured_output=answer, result=json.dumps(answer))

    assert json.loads((await claude.asked()).text) == answer


async def test_lines_that_a_wrapper_prints_first_do_no_harm(claude: StandIn):
    claude.plays(output=f"Using node 24\n{json.dumps(RESULT)}\n", errors="a warning")

    assert json.loads((await claude.asked()).text) == ANSWER


async def test_a_program_that_answers_without_reading_all_is_heard(claude: StandIn):
    claude.plays(output=json.dumps(RESULT), reads=False)
    long = msgspec.structs.replace(PROMPT, requests=["x" * 1_000_000])

    assert json.loads((await claude.asked(long)).text) == ANSWER


# What it says when there is no answer

KINDS = FailureKind
SAID: list[tuple[str, Mapping[str, object], FailureKind]] = [
    ("limit", {"api_error_status": 429, "result": "You've hit your limit · resets 7pm (Asia/Shanghai)"}, KINDS.QUOTA_EXHAUSTED),
    (
        "five hours",
        {"api_error_status": 429, "result": "You've hit your 5-hour limit · resets 7:03am (UTC)"},
        KINDS.QUOTA_EXHAUSTED,
    ),
    ("week", {"api_error_status": 429, "result": "You've hit your weekly limit · resets Nov 25, 5am (UTC)"}, KINDS.QUOTA_EXHAUSTED),
    ("model's limit", {"api_error_status": 429, "result": "You've hit your Opus limit · resets 5am (UTC)"}, KINDS.QUOTA_EXHAUSTED),
    ("no status", {"result": "You've hit your session limit · resets 5am"}, KINDS.QUOTA_EXHAUSTED),
    ("older words", {"result": "Claude AI usage limit reached|4102444800"}, KINDS.QUOTA_EXHAUSTED),
    ("credits", {"api_error_status": 400, "result": "Credit balance is too low"}, KINDS.QUOTA_EXHAUSTED),
    ("402", {"api_error_status": 402, "result": "API Error: 402 pay"}, KINDS.QUOTA_EXHAUSTED),
    ("no login", {"result": "Not logged in · Please run /login"}, KINDS.AUTH_INVALID),
    ("key", {"api_error_status": 401, "result": "Invalid API key · Fix external API key"}, KINDS.AUTH_INVALID),
    ("login expired", {"api_error_status": 401, "result": "Login expired · Please run /login"}, KINDS.AUTH_INVALID),
    ("401", {"api_error_status": 401, "result": "Failed to authenticate. API Error: 401 expired"}, KINDS.AUTH_INVALID),
    ("403", {"api_error_status": 403, "result": "Failed to authenticate. API Error: 403 no access"}, KINDS.AUTH_INVALID),
    ("429", {"api_error_status": 429, "result": "API Error: Request rejected (429) · Please try later."}, KINDS.RATE_LIMITED),
    (
        "server's limit",
        {"api_error_status": 429, "result": "API Error: Server is temporarily limiting requests (not your usage limit)"},
        KINDS.RATE_LIMITED,
    ),
    ("529", {"api_error_status": 529, "result": "API Error: 529 Overloaded. This is a server-side issue"}, KINDS.TRANSIENT),
    ("529 in prose", {"result": "API Error: 529 Overloaded."}, KINDS.TRANSIENT),
    ("500", {"api_error_status": 500, "result": "API Error: 500 Internal server error."}, KINDS.TRANSIENT),
    ("lost", {"result": "API Error: Connection to the API was lost (ECONNRESET)."}, KINDS.TRANSIENT),
    ("refused", {"result": "API Error: Connection refused — a firewall may be blocking it (ECONNREFUSED)"}, KINDS.TRANSIENT),
    ("error of its own", {"subtype": "error_during_execution", "result": None, "errors": ["It broke"]}, KINDS.TRANSIENT),
    (
        "too long",
        {"api_error_status": 400, "terminal_reason": "prompt_too_long", "result": "Prompt is too long · 250000 tokens"},
        KINDS.CONTEXT_TOO_LONG,
    ),
    ("too large", {"api_error_status": 413, "result": "Request too large (max 32MB)."}, KINDS.CONTEXT_TOO_LONG),
    ("model", {"api_error_status": 404, "result": "There's an issue with the selected model (haiko)."}, KINDS.SETUP_REQUIRED),
    ("refusal", {"stop_reason": "refusal", "result": "API Error: Haiku 5.5 can't help with this."}, KINDS.REFUSED),
    ("turns", {"subtype": "error_max_turns", "result": None, "errors": ["Reached maximum of turns"]}, KINDS.UNUSABLE_ANSWER),
    ("schema", {"subtype": "error_max_structured_output_retries", "result": None}, KINDS.UNUSABLE_ANSWER),
    (
        "cut",
        {"result": "API Error: Claude's response exceeded the 8192 output token maximum. To configure"},
        KINDS.UNUSABLE_ANSWER,
    ),
]


@pytest.mark.parametrize(("fields", "kind"), [pytest.param(fields, kind, id=name) for name, fields, kind in SAID])
async def test_an_error_means_what_it_says(claude: StandIn, fields: Mapping[str, object], kind: FailureKind):
    claude.answers(**{"is_error": True, "structured_output": None, **fields})

    error = await claude.failure()

    assert error.kind is kind
    assert "claude program" in str(error)
    assert error.completion is not None
    assert error.completion.output_tokens == 44


@pytest.mark.parametrize(
    ("message", "out_of_reach"),
    [
        pytest.param("API Error: 529 Overloaded.", True, id="overloaded"),
        pytest.param("API Error: Connection refused (ECONNREFUSED)", True, id="no connection"),
        pytest.param("API Error: Connection lost mid-response", False, id="cut off"),
    ],
)
async def test_only_what_never_saw_the_events_is_out_of_reach(claude: StandIn, message: str, out_of_reach: bool):
    claude.answers(is_error=True, structured_output=None, result=message)

    assert (await claude.failure()).out_of_reach is out_of_reach


SENTENCES = [
    "You've hit your limit · resets Dec 31, 9999, 3pm",
    "Invalid API key · Please run /login",
    "API Error: 529 Overloaded.",
]


@pytest.mark.parametrize("sentence", SENTENCES)
async def test_an_answer_without_an_error_is_an_answer_whatever_it_says(claude: StandIn, sentence: str):
    claude.answers(structured_output=None, result=sentence)

    assert (await claude.asked()).text == sentence


async def test_a_limit_in_the_words_of_an_error_pauses(claude: StandIn):
    claude.answers(is_error=True, structured_output=None, result="You've hit your limit · resets 3pm")

    error = await claude.failure()

    assert error.kind is FailureKind.QUOTA_EXHAUSTED
    assert error.retry_after_seconds is not None
    assert 0 < error.retry_after_seconds <= 86_460


async def test_an_answer_of_nothing_is_unusable(claude: StandIn):
    claude.answers(structured_output=None, result="")

    assert (await claude.failure()).kind is FailureKind.UNUSABLE_ANSWER


async def test_a_cut_answer_says_that_it_was_cut(claude: StandIn):
    claude.answers(structured_output=None, is_error=True, result="API Error: exceeded the 9 output token maximum.")

    error = await claude.failure()

    assert error.completion is not None
    assert error.completion.truncated


@pytest.mark.parametrize(
    ("now", "message", "hours"),
    [
        pytest.param("2026-11-22T05:00+00:00", "resets 7am (UTC)", 2, id="today"),
        pytest.param("2026-11-22T05:00+00:00", "resets 4:30am (UTC)", 23.5, id="tomorrow"),
        pytest.param("2026-11-22T05:00+00:00", "resets 3pm (Asia/Tokyo)", 1, id="another zone"),
        pytest.param("2026-11-22T11:00+00:00", "resets 12am (UTC)", 13, id="midnight"),
        pytest.param("2026-11-22T11:00+00:00", "resets 12pm", 1, id="noon, and our own zone"),
        pytest.param("2026-11-22T05:00+00:00", "resets Nov 25, 5:30am (UTC)", 72.5, id="a date"),
        pytest.param("2026-12-31T05:00+00:00", "resets Jan 2, 5am (UTC)", 48, id="next year"),
        pytest.param("2026-12-31T05:00+00:00", "resets Jan 2, 2027, 5am (UTC)", 48, id="a year"),
    ],
)
def test_when_a_limit_resets_is_read_from_its_words(now: str, message: str, hours: float):
    at = datetime.fromisoformat(now).astimezone(ZoneInfo("UTC"))

    assert seconds_until_reset(f"You've hit your limit · {message}", at) == hours * 3600 + 60


@try_rows("message", ["resets soon", "resets 3pm (Nowhere/Town)", "resets Foo 3, 3pm", "resets Feb 31, 3pm", "resets 3:99pm"])
def test_a_time_that_cannot_be_read_is_none(message: str):
    assert seconds_until_reset(message, datetime.fromisoformat("2026-11-22T05:00+00:00")) is None


# A program that fails itself


@pytest.mark.parametrize(
    ("play", "kind", "words"),
    [
        pytest.param({"output": "Hello!"}, FailureKind.TRANSIENT, "no JSON of a result (Hello!)", id="prose"),
        pytest.param({"output": "[]"}, FailureKind.TRANSIENT, "no JSON of a result", id="other JSON"),
        pytest.param({"output": '{"type": "system"}'}, FailureKind.TRANSIENT, "no JSON of a result", id="another object"),
        pytest.param({"output": json.dumps(RESULT)[:-9]}, FailureKind.TRANSIENT, "no JSON of a result", id="cut JSON"),
        pytest.param({}, FailureKind.TRANSIENT, "what it printed is no JSON of a result.", id="nothing"),
        pytest.param({"code": 3, "errors": "It\nbroke.\n"}, FailureKind.TRANSIENT, "it ended with 3 (It broke).", id="exit code"),
        pytest.param({"signal": 9}, FailureKind.TRANSIENT, "it was ended by signal 9.", id="killed"),
        pytest.param(
            {"code": 1, "errors": "error: unknown option '--json-schema'"},
            FailureKind.SETUP_REQUIRED,
            "claude update",
            id="too old",
        ),
        pytest.param(
            {"code": 127, "errors": "env: 'node': No such file or directory"},
            FailureKind.SETUP_REQUIRED,
            "env: 'node'",
            id="no node",
        ),
        pytest.param({"code": 1, "output": "Invalid API key · Please run /login"}, FailureKind.AUTH_INVALID, "/login", id="login"),
    ],
)
async def test_a_program_that_fails_is_told_apart(claude: StandIn, play: dict[str, object], kind: FailureKind, words: str):
    claude.plays(**play)

    error = await claude.failure()

    assert error.kind is kind
    assert words in str(error)


async def test_what_it_complains_of_is_quoted_in_one_short_line_without_secrets(claude: StandIn):
    token = "sk-ant-oat01-" + "Q" * 20
    claude.plays(code=1, errors=f"bad header: Bearer {token}\nkey {token} and {'f' * 40}\n" + "word " * 200)

    message = str(await claude.failure())

    assert "QQQ" not in message
    assert "fff" not in message
    assert "\n" not in message
    assert len(message) < 300


async def test_without_the_program_the_sentence_says_what_to_do(claude: StandIn):
    error = await claude.failure(claude_program=str(claude.folder / "nowhere"))

    assert error.kind is FailureKind.SETUP_REQUIRED
    assert "CLAUDE_CODE_PATH" in str(error)


async def test_a_file_that_may_not_be_run_is_for_the_operator(claude: StandIn):
    claude.path.chmod(0o644)

    assert (await claude.failure()).kind is FailureKind.SETUP_REQUIRED


@pytest.mark.parametrize("content", ["#!/no/such/interpreter\n", "\x7fELF of nothing"])
async def test_a_file_that_cannot_be_started_is_for_the_operator(claude: StandIn, content: str):
    claude.path.write_text(content)

    error = await claude.failure()

    assert error.kind is FailureKind.SETUP_REQUIRED
    assert "cannot be started" in str(error)


async def test_the_program_is_found_on_the_path(claude: StandIn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", f"{claude.folder}:{os.environ['PATH']}")

    assert json.loads((await claude.asked(claude_program="claude")).text) == ANSWER


def test_an_address_makes_no_sense_and_is_refused():
    with pytest.raises(Invalid, match="CMSERVER_BASE_URL"):
        load(ProviderSettings(name="claude-cli", base_url="http://127.0.0.1:1"))


# How it ends


class Fifo:
    """What the program and its child hold open as long as they live. Reading never waits."""

    def __init__(self, claude: StandIn) -> None:
        path = claude.folder / "fifo"
        if not path.exists():
            os.mkfifo(path)
        self._other_side = os.open(path, os.O_RDWR)  # so that it has no end yet
        self._side = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self) -> bytes | None:
        """What was written; b"" when nobody holds the other side any more, None when somebody does and says nothing."""
        try:
            return os.read(self._side, 5)
        except BlockingIOError:
            return None

    def let_go(self) -> None:
        """From now on it has an end, when the program and its child have ended."""
        os.close(self._other_side)

    def close(self) -> None:
        os.close(self._side)


@pytest.mark.parametrize("stays", ["obedient", "stubborn"])
async def test_a_cancelled_call_leaves_nothing_running(claude: StandIn, stays: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(claude_cli, "_SHUTDOWN_SECONDS", 0.2)
    claude.plays(stays=stays)
    fifo = Fifo(claude)
    call = asyncio.create_task(claude.asked(timeout_seconds=ENOUGH_SECONDS))
    await until("the program is there", lambda: fifo.read() == b"ready", call)
    fifo.let_go()

    call.cancel()
    await asyncio.gather(call, return_exceptions=True)

    assert call.cancelled()
    await until("nobody is left", lambda: fifo.read() == b"")
    fifo.close()
    assert claude.note["cwd"] not in claude.folders_left()


async def test_a_call_that_takes_too_long_is_given_up_and_leaves_nothing_running(claude: StandIn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(claude_cli, "_SHUTDOWN_SECONDS", 0.2)
    claude.plays(stays="obedient")
    for seconds in (1.0, 5.0, 25.0):  # a busy machine needs more to start the program
        fifo = Fifo(claude)

        error = await claude.failure(timeout_seconds=seconds)

        assert error.kind is FailureKind.TRANSIENT
        assert "CMSERVER_PROVIDER_TIMEOUT_SECONDS" in str(error)
        was_there = fifo.read() == b"ready"
        fifo.let_go()
        await until("nobody is left", lambda fifo=fifo: fifo.read() == b"")
        fifo.close()
        if was_there:
            break
    assert was_there
    assert claude.note["cwd"] not in claude.folders_left()
