#!/usr/bin/env bash
# OpenCode cancels each MCP call after it has been answered.
#
# Expected (MCP 2025-06-18, "Cancellation": a cancellation must only name a request that is believed to be in progress):
# tools/call, and nothing more when its answer has come.
# Guessed before the run: no cancellation without a person who stops the session.
# Seen (opencode-ai 1.18.33): after the answer of each tools/call comes notifications/cancelled with its requestId and the
# reason "AbortError: The operation was aborted." The model has the answer all the same.
# Why it matters: a server that takes cancellations for what they are counts each call as aborted, and one that undoes or logs
# them does so with work that was done and delivered.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-audit --no-fund --loglevel=error opencode-ai@1.18.33 >/dev/null
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
TOOLS = [{"name": "find", "description": "Finds notes", "inputSchema": {"type": "object"}}]


def call(_asked):
    return "notes_find"


def mcp(said):
    """An MCP server over HTTP that notes what it is asked."""
    NOTED.append(said)
    if "id" not in said:
        return None
    answer = {"jsonrpc": "2.0", "id": said["id"]}
    method = said["method"]
    if method == "initialize":
        server = {"name": "notes", "version": "1"}
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
    elif method == "tools/list":
        answer["result"] = {"tools": TOOLS}
    elif method == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": "found"}]}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    return answer


def model(asked):
    """Plays the Messages API: the call of `call(asked)` first, then some words."""
    if not asked.get("tools"):
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "Notes"}  # the session's title
    else:
        ASKED.append(asked)
        if len(ASKED) == 1 and (name := call(asked)):
            block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": "{}"}
        else:
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "Done."}
    usage = {"input_tokens": 9, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": [], "usage": usage}
    stopped = {"stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stopped, "usage": usage},
        {"type": "message_stop"},
    ]


home, project = WORK / "home", WORK / "project"
home.mkdir()
project.mkdir()
subprocess.run(["git", "init", "--quiet", project], check=True)
env = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
env.update(OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_MODELS_FETCH="1", OPENCODE_DISABLE_LSP_DOWNLOAD="1")
options = {"baseURL": f"{serve(model)}/v1", "apiKey": "none"}
played = {"npm": "@ai-sdk/anthropic", "name": "played", "options": options, "models": {"model": {"name": "played"}}}
remote = {"type": "remote", "url": f"{serve(mcp)}/mcp", "enabled": True}
settings = {"share": "disabled", "autoupdate": False, "provider": {"played": played}, "mcp": {"notes": remote}}
(home / ".config" / "opencode").mkdir(parents=True)
(home / ".config" / "opencode" / "opencode.json").write_text(json.dumps(settings))
command = [WORK / "node_modules/.bin/opencode", "run", "--model", "played/model", "Go on"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")

called = [said["id"] for said in NOTED if said["method"] == "tools/call"]
after = NOTED[[said["method"] for said in NOTED].index("tools/call") + 1 :]
cancelled = [said["params"] for said in after if said["method"] == "notifications/cancelled"]
told = [block["content"] for message in ASKED[-1]["messages"] for block in message["content"] if block["type"] == "tool_result"]
print("OpenCode 1.18.33: calls", called, "then", cancelled, "and the model was told", told)
as_described = len(called) == 1 and [given["requestId"] for given in cancelled] == called and told == ["found"]

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
