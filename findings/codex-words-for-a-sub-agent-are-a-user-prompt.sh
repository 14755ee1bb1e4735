#!/usr/bin/env bash
# What Codex's model writes for a sub-agent arrives as a UserPromptSubmit of the same session.
#
# Expected (the names of the events in the page "Hooks" of Codex's documentation; SubagentStart and SubagentStop are there for
# sub-agents): UserPromptSubmit has what a person typed.
# Guessed before the run: SubagentStart and SubagentStop only.
# Seen (Codex 0.171.0): after SubagentStart comes a UserPromptSubmit with the parent's session_id, whose prompt are the model's
# words. Only agent_id and a transcript_path of its own set it apart. Besides: spawn_agent is called by its name in the hooks,
# but wait_agent, of the same namespace, multi_agent_v1wait_agent.
# Why it matters: a memory keeps as the person's wish what nobody typed, and counts a turn more.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-audit --no-fund --loglevel=error @openai/codex@0.171.0 >/dev/null
WORK=$work python3 - <<'PYTHON'
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WORK = Path(os.environ["WORK"])


def serve(answer):
    """Answers POSTs with what `answer` makes of their JSON: nothing, an object, or a list of server-sent events."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_words):
            pass

        def do_GET(self):
            self.send_error(405)

        do_DELETE = do_GET

        def do_POST(self):
            said = answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            streamed = isinstance(said, list)
            self.send_response(202 if said is None else 200)
            self.send_header("content-type", "text/event-stream" if streamed else "application/json")
            self.end_headers()
            if streamed:
                self.wfile.write("".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in said).encode())
            elif said is not None:
                self.wfile.write(json.dumps(said).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


ASKED = []
WORDS = "Count the tests of this project."


def items(asked):
    said = json.dumps(asked["input"])
    if "spawn_agent" not in said and WORDS in said:
        return None  # the sub-agent
    if len(ASKED) == 1:
        return [function_call(1, "spawn_agent", {"message": WORDS}, namespace="multi_agent_v1")]
    if "wait_agent" in said:
        return None
    spawned = next(item for item in asked["input"] if item["type"] == "function_call_output")
    found = json.loads(spawned["output"])
    return [function_call(2, "wait_agent", {"targets": [found["agent_id"]], "timeout_ms": 20000}, namespace="multi_agent_v1")]


def model(asked):
    """Plays the Responses API: what `items(asked)` gives, or some words."""
    ASKED.append(asked)
    done = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done.", "annotations": []}]}
    output = items(asked) or [done]
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10, **details}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        *({"type": "response.output_item.done", "output_index": index, "item": item} for index, item in enumerate(output)),
        {"type": "response.completed", "response": {"id": "resp_1", "output": output, "usage": usage}},
    ]


def function_call(number, name, arguments, **more):
    given = {"call_id": f"call_{number}", "name": name, "arguments": json.dumps(arguments)}
    return {"type": "function_call", "id": f"fc_{number}", **given, **more}


home, project = WORK / "home", WORK / "project"
home.mkdir()
project.mkdir()
subprocess.run(["git", "init", "--quiet", project], check=True)
env = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
noted = WORK / "hooks.jsonl"
hook = WORK / "hook.py"
hook.write_text(f"import sys\nopen({str(noted)!r}, 'a').write(sys.stdin.read().strip() + '\\n')\n")
env.update(CODEX_HOME=str(home / ".codex"), PLAYED_KEY="none")
(home / ".codex").mkdir()
settings = f"""
model = "gpt-5"
model_provider = "played"
[model_providers.played]
name = "played"
base_url = "{serve(model)}/v1"
wire_api = "responses"
env_key = "PLAYED_KEY"
[analytics]
enabled = false
"""
for event in ("UserPromptSubmit", "SubagentStart", "SubagentStop", "PreToolUse"):
    settings += f'[[hooks.{event}]]\n[[hooks.{event}.hooks]]\ntype = "command"\ncommand = "{sys.executable} {hook}"\n'
(home / ".codex" / "config.toml").write_text(settings)
command = [WORK / "node_modules/.bin/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
command += ["--dangerously-bypass-hook-trust", "Go on"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")
events = [json.loads(line) for line in noted.read_text().splitlines()]

prompts = [event for event in events if event["hook_event_name"] == "UserPromptSubmit"]
for event in prompts:
    print("Codex 0.171.0: UserPromptSubmit", {key: event.get(key) for key in ("session_id", "agent_id", "prompt")})
tools = [event["tool_name"] for event in events if event["hook_event_name"] == "PreToolUse"]
print("and the tools are called", tools)
mine, its = (prompts + [{}, {}])[:2]
as_described = (
    [mine.get("prompt"), its.get("prompt")] == ["Go on", WORDS]
    and mine.get("session_id") == its.get("session_id")
    and "agent_id" not in mine
    and bool(its.get("agent_id"))
    and mine["transcript_path"] != its["transcript_path"]
    and tools == ["spawn_agent", "multi_agent_v1wait_agent"]
)

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
