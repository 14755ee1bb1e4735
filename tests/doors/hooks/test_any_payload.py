"""Whatever comes in at a hook: it is understood or refused, and what is understood can be stored and answered."""

from __future__ import annotations

import json
from typing import cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmserver.base.errors import Invalid
from cmserver.base.text import KEY_MOST, storable
from cmserver.doors.hooks import api
from cmserver.doors.hooks.model import Adapter, HookCall
from cmserver.redaction.clean import clean
from tests.doors.hooks.expect import BOTH, SAMPLES, answered, names, sample
from tests.table import try_rows

ADAPTERS = list(api.ADAPTERS.values())
FOLDERS = sorted(folder.name for folder in SAMPLES.iterdir())
HOOKS = sorted({name.partition("-")[0] for folder in FOLDERS for name in names(folder)})
FIELDS = sorted({field for folder in FOLDERS for name in names(folder) for field in sample(folder, name)})
TOOLS = ["Bash", "Read", "read_file", "run_shell_command", "apply_patch", "mcp__cmserver__search"]
_texts = st.one_of(
    st.text(st.characters(), max_size=30),
    st.sampled_from([*TOOLS, "\x00", "\ud800", "x" * (KEY_MOST + 1), "p" * 5000, "cmserver search 'x", "<tick>" * 50]),
)
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.sampled_from(["command", "file_path", "error"]), _texts), inner)
    ),
    max_leaves=8,
)

_some = st.dictionaries(st.sampled_from([*FIELDS, "tool_calls", "mcp_context"]), _values, max_size=8)
_session_ids = st.one_of(st.just("s"), _values)


@st.composite
def _payloads(draw: st.DrawFn) -> dict[str, object]:
    some = draw(_some)
    return {**some, "hook_event_name": draw(st.one_of(st.sampled_from(HOOKS), _texts)), "session_id": draw(_session_ids)}


def _check(call: HookCall) -> None:
    kept: list[str | None] = [call.session_id, call.cwd, call.prompt, call.file]
    for event in call.events:
        kept += [event.event_type, event.source_event_id]
        assert event.source_event_id is None or len(event.source_event_id) <= KEY_MOST
        assert 1 <= len(event.event_type) <= 200
        assert "\n" not in event.event_type
    assert all(text is None or text == storable(text) for text in kept)
    assert len(call.session_id) <= KEY_MOST
    assert len(call.cwd or "") <= 4096
    assert len(call.file or "") <= 4096
    for fields in [call.metadata, *(event.metadata for event in call.events)]:
        msgspec.json.encode(fields)
        assert "\x00" not in json.dumps(fields, ensure_ascii=False)
    for event in call.events:
        try:
            cleaned = clean(event.payload, field_max_chars=10_000).value
        except Invalid:
            continue  # too deep, or a number that is none: the door says so
        msgspec.json.encode(cleaned)


_FIELDS = {
    "": {"hookSpecificOutput", "systemMessage"},
    "additional_context": {"additional_context"},
    "additionalContext": {"additionalContext"},
}
"""What an answer may have, by the agent's form."""


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda one: cast("Adapter", one).platform)
@settings(max_examples=150, deadline=None)
@given(payload=st.one_of(_payloads(), _values), delivery=st.one_of(st.none(), _texts))
def test_it_is_understood_or_refused_and_never_breaks(adapter: Adapter, payload: object, delivery: str | None):
    try:
        call = adapter.parse(payload, delivery)
    except Invalid:
        return

    _check(call)
    assert set(answered(adapter, call, BOTH)) <= _FIELDS[adapter.flat_field]


@try_rows("adapter", ADAPTERS, ids=lambda adapter: adapter.platform)
def test_a_field_as_deep_as_it_gets_breaks_nothing(adapter: Adapter):
    deep: object = "x"
    for _ in range(900):
        deep = [deep]

    for hook in HOOKS:
        body = {"hook_event_name": hook, "session_id": "s", "tool_name": "Bash", "tool_input": deep, "tool_calls": deep}
        assert adapter.parse(body, None).name == hook


@try_rows("adapter", ADAPTERS, ids=lambda adapter: adapter.platform)
def test_a_path_that_is_too_long_is_as_if_it_were_not_there(adapter: Adapter):
    long = "/" + "p" * 4096
    body = {"hook_event_name": "SessionStart", "session_id": "s", "cwd": long}
    read = {"session_id": "s", "tool_name": "Read", "tool_input": {"file_path": long}}

    call = adapter.parse(body, None)

    assert (call.cwd, call.metadata) == (None, {})
    assert adapter.parse({**read, "hook_event_name": "PreToolUse"}, None).file is None
