#!/usr/bin/env bash
# An MCP tool's error reaches Codex's model as a result, without its words if there is structured content, and no hook.
#
# Expected (MCP 2025-06-18, "Tools", error handling: isError tells the model that the call failed, so that it can mend it; the
# page "Hooks" of Codex's documentation: PostToolUse of MCP tools): the model reads that it failed and why, and a PostToolUse,
# or a hook for failures, tells it.
# Guessed before the run: perhaps no hook, but for the model an error with its words, which it can tell from a result.
# Seen (Codex 0.171.0): with isError the model gets the text behind "Wall time", as of a call that went well; with
# structuredContent beside it the JSON alone, and the error's text is lost. PreToolUse is sent and nothing after it. The rollout
# knows: item_completed, McpToolCall, status "failed".
# Why it matters: a server should say "Error:" in its words and give no structuredContent with an error; a recorder has to read
# the rollout.
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


ASKED, NOTED = [], []
TOOLS = [{"name": name, "description": "Gets a note", "inputSchema": {"type": "object"}} for name in ("good", "words", "both")]
RESULTS = {
    "good": {"content": [{"type": "text", "text": "note seven"}]},
    "words": {"content": [{"type": "text", "text": "there is no such note"}], "isError": True},
    "both": {"content": [{"type": "text", "text": "there is no such note"}], "isError": True, "structuredContent": {"found": 0}},
}


def items(_asked):
    number = len(ASKED) - 1
    return [function_call(number, [*RESULTS][number], {}, namespace="mcp__notes")] if number < len(RESULTS) else None


def mcp(said):
    """An MCP server over HTTP that notes what it is asked."""
    NOTED.append(said)
    if "id" not in said:
        return None
    answer = {"jsonrpc": "2.0", "id": said["id"]}
    method, params = said["method"], said.get("params") or {}
    if method == "initialize":
        server = {"name": "notes", "version": "1"}
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
    elif method == "tools/list":
        answer["result"] = {"tools": TOOLS}
    elif method == "tools/call":
        answer["result"] = RESULTS[params["name"]]
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    return answer


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
settings += f'[mcp_servers.notes]\nurl = "{serve(mcp)}/mcp"\n'
for event in ("PreToolUse", "PostToolUse"):
    settings += f'[[hooks.{event}]]\n[[hooks.{event}.hooks]]\ntype = "command"\ncommand = "{sys.executable} {hook}"\n'
(home / ".codex" / "config.toml").write_text(settings)
command = [WORK / "node_modules/.bin/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
command += ["--dangerously-bypass-hook-trust", "Go on"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")
events = [json.loads(line) for line in noted.read_text().splitlines()]


def words(output):
    """What the model reads, without the line of the time it took."""
    text = output if isinstance(output, str) else "\n".join(part["text"] for part in output)
    return text.split("Output:", 1)[1].strip()


told = [words(item["output"]) for item in ASKED[-1]["input"] if item["type"] == "function_call_output"]
hooks = [(event["hook_event_name"], event["tool_name"]) for event in events]
print("Codex 0.171.0: of the three calls the model read", told)
print("and the hooks were", hooks)
as_described = told == ["note seven", "there is no such note", '{"found":0}'] and hooks == [
    ("PreToolUse", "mcp__notes__good"),
    ("PostToolUse", "mcp__notes__good"),
    ("PreToolUse", "mcp__notes__words"),
    ("PreToolUse", "mcp__notes__both"),
]

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
