"""A turn without last words gets those of the transcript: at the next prompt, at the session's end, or when a session starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.client.hook.agent import Agent
from tests.client.hook.recorder import Recorder


def reply_line(text: str, **fields: object) -> str:
    """A line of Claude Code's transcript."""
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "assistant", "message": message, **fields}, separators=(",", ":"))


class Session:
    """A session of the agent with its transcript."""

    def __init__(self, agent: Agent, name: str = "s1") -> None:
        self.agent = agent
        self._name = name
        self.transcript = agent.home / f"{name}.jsonl"
        self.transcript.write_text('{"type":"summary"}\n')

    def write(self, *lines: str) -> None:
        with self.transcript.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def hook(self, event: str, **fields: object) -> dict[str, object]:
        payload = {"session_id": self._name, "transcript_path": str(self.transcript), "hook_event_name": event, **fields}
        answer = self.agent.hook(event, json.dumps(payload, separators=(",", ":")).encode())
        self.agent.until_drained()
        return answer


@pytest.fixture
def session(agent: Agent) -> Session:
    return Session(agent)


def sent(server: Recorder) -> list[tuple[object, object]]:
    """Each hook's name, with the text of the line of a transcript."""
    lines = [(request.payload["hook_event_name"], request.payload.get("transcript_line")) for request in server.sent]
    return [(name, json.loads(json.dumps(line))["message"]["content"][0]["text"] if line else None) for name, line in lines]


def test_an_interrupted_turn_s_last_words_come_behind_the_next_prompt_whose_answer_is_given(session: Session, server: Recorder):
    session.hook("UserPromptSubmit", prompt="Why is it slow?")
    session.write(
        reply_line("Looking."), reply_line("A cold cache, so far."), '{"type":"user","message":{"role":"user","content":"stop"}}'
    )

    answer = session.hook("UserPromptSubmit", prompt='Never mind "transcript_path":"/etc/passwd.jsonl"')
    session.write(reply_line("All right."))
    session.hook("Stop", last_assistant_message="All right.")
    session.hook("UserPromptSubmit", prompt="thanks")

    assert answer == {"answer": True}
    assert sent(server) == [
        ("UserPromptSubmit", None),
        ("UserPromptSubmit", None),
        ("TranscriptEnd", "A cold cache, so far."),
        ("Stop", None),
        ("UserPromptSubmit", None),
    ]
    assert server.sent[2].payload["session_id"] == "s1"
    assert len({request.headers["x-cmserver-delivery"] for request in server.sent}) == 5


def test_a_session_that_ends_in_a_turn_sends_its_last_words_before_its_end(session: Session, server: Recorder):
    session.hook("UserPromptSubmit", prompt="Why?")
    session.write(reply_line("Because."))
    session.hook("SessionEnd", reason="other")

    assert sent(server) == [("UserPromptSubmit", None), ("TranscriptEnd", "Because."), ("SessionEnd", None)]


def test_a_killed_session_s_last_words_come_when_it_or_a_later_one_starts(agent: Agent, session: Session, server: Recorder):
    other, busy = Session(agent, "s2"), Session(agent, "s3")
    for agent_session in (session, other, busy):
        agent_session.hook("UserPromptSubmit", prompt="Why?")
        agent_session.write(reply_line(f"Because of {agent_session.transcript.stem}."))
    hour_ago = other.transcript.stat().st_mtime - 3600
    os.utime(other.transcript, (hour_ago, hour_ago))
    server.sent.clear()

    session.hook("SessionStart", source="resume")

    assert sorted(sent(server), key=str) == [
        ("SessionStart", None),
        ("TranscriptEnd", "Because of s1."),
        ("TranscriptEnd", "Because of s2."),
    ]


def test_what_is_no_last_word_is_not_sent(session: Session, server: Recorder, tmp_path: Path):
    whole = [
        reply_line("Of a sub-agent.", isSidechain=True),
        reply_line("API Error", isApiErrorMessage=True),
        '{"type":"assistant"}',
    ]
    session.hook("UserPromptSubmit", prompt="Why?")
    session.write(*whole)
    session.transcript.write_text(session.transcript.read_text() + reply_line("Torn")[:-5])
    session.hook("UserPromptSubmit", prompt="Why?")
    session.transcript.unlink()
    session.hook("SessionEnd", reason="other")

    assert [name for name, _ in sent(server)] == ["UserPromptSubmit", "UserPromptSubmit", "SessionEnd"]


def test_a_transcript_s_path_may_be_one_of_windows(session: Session, server: Recorder):
    before, session.transcript = session.transcript, session.agent.folder / "C:" / "Users" / "my notes.jsonl"
    session.transcript.parent.mkdir(parents=True)
    before.rename(session.transcript)
    path = r"C:\Users\my notes.jsonl"
    session.hook("UserPromptSubmit", prompt="Why?", transcript_path=path)
    session.write(reply_line("A cold cache."))

    session.hook("UserPromptSubmit", prompt="And now?", transcript_path=path)

    assert ("TranscriptEnd", "A cold cache.") in sent(server)


def execution(id_: str, code: int, output: str = "", turn: str = "t1") -> str:
    """A line of Codex's rollout."""
    item: dict[str, object] = {
        "type": "CommandExecution",
        "id": id_,
        "process_id": "1",
        "command": ["/bin/bash", "-lc", 'echo "a]" && x'],
    }
    item |= {"cwd": "file:///w", "parsed_cmd": [], "status": "failed" if code else "completed", "aggregated_output": output}
    payload: dict[str, object] = {
        "type": "item_completed",
        "thread_id": "s1",
        "turn_id": turn,
        "item": {**item, "exit_code": code, "duration": {"secs": 0}},
    }
    return json.dumps({"timestamp": "2026-11-28T16:09:22.312Z", "type": "event_msg", "payload": payload}, separators=(",", ":"))


def test_the_end_of_a_codex_turn_has_the_exit_codes_of_its_commands(tmp_path: Path, shell: Path, server: Recorder):
    agent = Agent(tmp_path, shell, server.url, "codex")
    session = Session(agent)
    forged = '","exit_code":9,"cwd":"/x'
    session.write(execution("c0", 7, turn="t0"), execution("c1", 4, forged), execution("c2", 0, "fine\n"), execution("c3", -1))
    session.write(execution("c4", 5)[:-20], '{"turn_id":"t1"}')

    for turn in ("t1", "t2", "t[0-9]"):
        session.hook("Stop", turn_id=turn, last_assistant_message="It ran.")
    session.transcript.unlink()
    session.hook("Stop", turn_id="t1", last_assistant_message="It ran.")

    ends = [request.payload.get("command_ends") for request in server.sent]
    command = ["/bin/bash", "-lc", 'echo "a]" && x']
    told = [("c1", 4), ("c2", 0), ("c3", -1)]
    assert ends[0] == [{"tool_use_id": id_, "exit_code": code, "command": command} for id_, code in told]
    assert ends[1:] == [None, None, None]
    assert [request.payload["last_assistant_message"] for request in server.sent] == ["It ran."] * 4
    agent.until_idle()
