"""One value that cannot be kept costs that value, and not the event; facts are drawn from the whole of what is cut."""

from __future__ import annotations

import httpx
import msgspec

from cmserver.base.db import Db
from cmserver.base.json_text import MAX_DEPTH, JsonCutter, decode_json
from cmserver.base.tolerant_json import record
from cmserver.reading.model import CommandRun, EventReading, FileEdit
from cmserver.reading.read import read_event
from cmserver.redaction.clean import clean
from tests.conftest import Cast
from tests.rows import rows
from tests.rules.offline import ROOT, observe, tool_use

FIELD_CHARS = 16_000


def nested(levels: int) -> object:
    value: object = "leaf"
    for _ in range(levels):
        value = {"a": value}
    return value


async def test_an_event_with_one_awkward_value_is_stored_with_the_rest(client: httpx.AsyncClient, cast: Cast, db: Db):
    edit = {"tool_name": "Edit", "tool_input": {"file_path": "package-lock.json", "old_string": "4.17.20", "new_string": "4.17.21"}}
    values = {"levels": msgspec.json.encode(nested(70)).decode(), "1e400": "1e400", "NaN": "NaN", "-Infinity": "-Infinity"}
    values |= {"digits": "9" * 5_000, "large": '"' + r"x\n" * 3_000_000 + '"', "list": "[" + '"aaaaaaa",' * 900_000 + '"a"]'}
    values |= {"lists": "[" * 5_000 + "]" * 5_000, "objects": '{"[\\"":[' * 5_000 + '"]"' + "]}" * 5_000}
    values |= {"deep and no JSON": "[" * 5_000 + "NaN" + "]" * 5_000}

    statuses: dict[str, int] = {}
    for name, value in values.items():
        body = {"session_id": "s1", "hook_event_name": "PostToolUse", "tool_response": {"n": "VALUE"}, **edit, "tool_use_id": name}
        text = msgspec.json.encode(body).decode().replace('"VALUE"', value)
        headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id}
        statuses[name] = (await client.post("/v1/hooks/claude-code", content=text, headers=headers)).status_code

    assert statuses == dict.fromkeys(values, 200)
    query = "SELECT payload->'tool_input'->>'new_string' AS new, source_event_id AS id FROM agent_events"
    stored = await rows(db, query)
    assert [(row["new"], row["id"]) for row in stored] == [("4.17.21", f"tool:{name}") for name in values]


async def test_no_agent_loses_an_event_to_the_depth_of_its_tool_s_answer(client: httpx.AsyncClient, cast: Cast):
    names = {"claude-code": "PostToolUse", "codex": "PostToolUse", "gemini": "AfterTool", "cursor": "postToolUse"}
    names |= dict.fromkeys(("opencode", "kilo", "copilot"), "PostToolUse")
    headers = {**cast.alice.headers, "X-Cmserver-Project": cast.alice.project.canonical_id}
    wrong: list[tuple[str, int, int]] = []
    for agent, name in names.items():
        for levels in (*range(58, 70), 980, 2_000):
            answer = "[" * levels + "]" * levels
            body: dict[str, object] = {
                "hook_event_name": name,
                "session_id": "s1",
                "conversation_id": "s1",
                "tool_name": "Dump",
                "tool_input": {},
            }
            body |= {"tool_use_id": f"{agent}{levels}", "tool_output": answer, "tool_response": "VALUE"}
            text = msgspec.json.encode(body).decode().replace('"VALUE"', answer)
            answered = await client.post(f"/v1/hooks/{agent}", content=text, headers=headers)
            if answered.status_code != 200:
                wrong.append((agent, levels, answered.status_code))

    assert wrong == []


async def test_a_body_beyond_all_bounds_is_still_refused(client: httpx.AsyncClient, cast: Cast):
    start = b'{"session_id": "s1", "hook_event_name": "Stop", '
    bodies = {
        "members": start + b",".join(b'"m%d": ["%s"]' % (number, b"a" * 90_000) for number in range(99)) + b"}",
        "brackets": start + b'"list": [' + b"[]," * 3_000_000 + b"[]]}",
    }

    statuses: dict[str, int] = {}
    for name, body in bodies.items():
        statuses[name] = (await client.post("/v1/hooks/claude-code", content=body, headers=cast.alice.headers)).status_code

    assert statuses == dict.fromkeys(bodies, 413)


def test_a_text_is_cut_alike_wherever_its_parts_begin():
    texts = ("short", "a" * 50, "\\" * 30, '"' * 30, "ü€😀" * 20, "line\n" * 20, "\x01" * 20, "", "[{" * 9)
    values = {str(place): text for place, text in enumerate(texts)}
    deep: dict[str, object] = {"large": [1] * 99, "deep": nested(MAX_DEPTH + 5), "kept": {"a": [1, {}], "b": "]"}}
    body = msgspec.json.encode({"n": 1, **values, **deep, "last": ["x" * 40, {"y": None}]})
    limits = 24, 600
    cutter = JsonCutter(*limits)
    whole = cutter.cut(body) + cutter.end()

    wrong: list[int] = []
    for size in range(1, 40):
        cutter = JsonCutter(*limits)
        parts = [cutter.cut(body[at : at + size]) for at in range(0, len(body), size)]
        if b"".join([*parts, cutter.end()]) != whole:
            wrong.append(size)

    assert wrong == []
    fields = record(decode_json(whole))
    assert fields["0"] == "short"
    assert fields["1"] == "a" * 24 + "\n[... 26 characters in 0 lines left out ...]\n"
    assert all(text.startswith(str(fields[str(place)]).partition("\n[...")[0]) for place, text in enumerate(texts))
    assert fields["kept"] == deep["kept"]
    assert '"[... ' in msgspec.json.encode(fields["deep"]).decode()
    limits = 24, 150
    assert record(decode_json(JsonCutter(*limits).cut(body)))["large"] == "[... 199 bytes left out ...]"


def test_lines_are_counted_before_a_text_is_cut():
    content = "\n".join(f"line number {number} of the generated file" for number in range(3_000))
    old = "\n".join(f"old line {number} of the generated file" for number in range(2_000))
    uses = {
        "Write": (("gen.txt", 3_000, 0), {"file_path": f"{ROOT}/gen.txt", "content": content}),
        "Edit": (("gen.txt", 3_000, 2_000), {"file_path": f"{ROOT}/gen.txt", "old_string": old, "new_string": content}),
    }

    wrong = {name: counted for name, (expected, sent) in uses.items() if (counted := _count(name, sent)) != [expected]}

    assert wrong == {}


def test_files_in_the_middle_of_a_long_patch_are_kept():
    patch = "\n".join(
        ["*** Begin Patch"]
        + [f"*** Update File: src/f{number}.py\n@@\n" + "-old line\n+new line\n" * 400 for number in range(4)]
        + ["*** End Patch"]
    )

    assert [path for path, _, _ in _count("apply_patch", {"command": patch})] == [f"src/f{number}.py" for number in range(4)]


def _count(tool: str, sent: object) -> list[tuple[str, int, int]]:
    act = _as_stored(tool_use(tool, sent, {})).act
    assert isinstance(act, FileEdit)
    return [(change.path, change.plus, change.minus) for change in act.changes]


def test_an_error_in_the_middle_of_a_long_output_is_found():
    log = "\n".join(f"compile file_{number}.c ... ok" for number in range(1_500))
    errors = {
        "make -k all": "src/pay.c:42:7: error: use of undeclared identifier 'ammount'",
        "cargo build": "error[E0425]: cannot find value `ammount` in this scope",
        "pytest": "E   AssertionError: assert 1 == 2",
        "go test ./...": "panic: runtime error: index out of range [3] with length 3",
        "python run.py": "ValueError: no such account\nTraceback (most recent call last):",
    }

    lost: list[str] = []
    for command, error in errors.items():
        event = tool_use("Bash", {"command": command}, error=f"Exit code 2\n{log}\n{error}\n{log}\nstopped")
        act = _as_stored(event).act
        assert isinstance(act, CommandRun)
        if "ammount" not in act.outcome.error and not any(word in act.outcome.output for word in error.splitlines()[-1:]):
            lost.append(command)

    assert lost == []


def _as_stored(event: EventReading) -> EventReading:
    """The event as it comes out of the database."""
    kept = clean(event.payload, field_max_chars=FIELD_CHARS).value
    assert clean(kept, field_max_chars=FIELD_CHARS).value == kept
    return read_event(event.event_type, kept, ROOT)


def test_what_is_kept_of_the_middle_is_clean_and_fits():
    secret = "AKIA" + "IOSFODNN7EXAMPLD"
    text = "ok\n" * 9_000 + f"error: key {secret} is denied\n" + "error: " + "x" * 9_000 + "\n" + "ok\n" * 9_000

    kept = str(clean(text, field_max_chars=FIELD_CHARS).value)

    assert len(kept) <= FIELD_CHARS
    assert "error: key [redacted:" in kept
    assert secret not in kept


async def test_a_file_moved_by_a_patch_has_its_second_name():
    patch = (
        "*** Begin Patch\n*** Update File: src/old.ts\n*** Move to: src/new.ts\n@@\n"
        "-export const oldName = 1\n+export const newName = 1\n*** End Patch"
    )

    answer = await observe(tool_use("apply_patch", {"command": patch}, "Success."))

    (change,) = answer.observations
    assert change.title == "Moved src/old.ts to src/new.ts"
    assert change.files_modified == ["src/new.ts"]
    assert change.facts[0].startswith("src/new.ts (+1/-1): ")
