#!/usr/bin/env bash
# For one MCP session that a server has lost, Claude Code makes two at once, sometimes three, and ends none of them.
#
# Expected (MCP 2025-11-25, "Session Management": a client that gets 404 for its session must start a new one, by one
# InitializeRequest without an id; one that no longer needs a session should end it by DELETE): one new session, and the call again.
# Guessed before the run: one new session, and the call is sent again.
# Seen (Claude Code 2.1.332): the call is sent again, and the model does not hear of it. But initialize comes twice at once, for
# two sessions: one is never used after notifications/initialized, the other has the call. In some runs a third one is made one
# to three calls later, which lists the tools again and has all calls from then on. No DELETE comes, not even at the end. (Codex
# 0.171.0 makes one.)
# Why it matters: a server that was restarted gets two or three sessions for each that it had, each with its state until it
# expires; and what a tool has kept in the session that came after the restart, as a chosen project, may be gone some calls later.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-audit --no-fund --loglevel=error @anthropic-ai/claude-code@2.1.332 >/dev/null
WORK=$work python3 - <<'PYTHON'
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WORK = Path(os.environ["WORK"])
CALLS = 6


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_words):
        pass

    def give(self, status, text="", kind="application/json", session=None):
        self.send_response(status)
        self.send_header("content-type", kind)
        if session:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(text.encode())

    def read(self):
        return json.loads(self.rfile.read(int(self.headers["content-length"])))


class Server(Handler):
    """An MCP server that forgets its session after the first call, as if it had been started anew."""

    noted, live, made = [], set(), []

    def do_GET(self):
        self.give(405)

    def do_DELETE(self):
        self.noted.append((self.headers["mcp-session-id"], "DELETE"))
        self.give(200)

    def do_POST(self):
        said, session = self.read(), self.headers["mcp-session-id"]
        method = said.get("method")
        answer = {"jsonrpc": "2.0", "id": said.get("id")}
        if method == "initialize":
            session = f"session {len(self.made) + 1}"
            self.made.append(session)
            self.live.add(session)
            server = {"name": "notes", "version": "1"}
            answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}
            self.noted.append((session, method))
            return self.give(200, json.dumps(answer), session=session)
        if session not in self.live:
            status, words = (404, "Session not found") if session else (400, "Bad Request: no session")
            self.noted.append((session, f"{method}: {status}"))
            return self.give(status, json.dumps({**answer, "error": {"code": -32000, "message": words}}))
        self.noted.append((session, method))
        if "id" not in said:
            return self.give(202)
        if method == "tools/list":
            answer["result"] = {"tools": [{"name": "find", "description": "Finds", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            answer["result"] = {"content": [{"type": "text", "text": "found"}]}
            if self.live == {"session 1"}:
                self.live.clear()
        else:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        return self.give(200, json.dumps(answer))


class Model(Handler):
    """Plays the Messages API: one call of the tool after the other, then some words."""

    asked = []

    def do_POST(self):
        asked = self.read()
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "Done."}
        if asked.get("tools"):
            self.asked.append(asked)
            number = len(self.asked)
            if number <= CALLS:
                block = {"type": "tool_use", "id": f"toolu_{number}", "name": "mcp__notes__find", "input": {}}
                delta = {"type": "input_json_delta", "partial_json": "{}"}
        usage = {"input_tokens": 9, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": [], "usage": usage}
        stopped = {"stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn", "stop_sequence": None}
        events = [
            {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stopped, "usage": usage},
            {"type": "message_stop"},
        ]
        self.give(200, "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events), "text/event-stream")


def serve(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


home, project = WORK / "home", WORK / "project"
home.mkdir()
project.mkdir()
subprocess.run(["git", "init", "--quiet", project], check=True)
env = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
env.update(ANTHROPIC_BASE_URL=serve(Model), ANTHROPIC_API_KEY="none", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
remote = {"type": "http", "url": f"{serve(Server)}/mcp", "alwaysLoad": True}
(WORK / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": remote}}))
command = [WORK / "node_modules/.bin/claude", "-p", "Go on", "--strict-mcp-config", "--mcp-config", WORK / "mcp.json"]
command += ["--allowedTools", "mcp__notes__find"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")

print("Claude Code 2.1.332 sent:")
for session, method in Server.noted:
    print(f"    {session or 'no session'}: {method}")
lost = next(place for place, (_session, method) in enumerate(Server.noted) if method.endswith("404"))
again = next(place for place, noted in enumerate(Server.noted) if place > lost and noted[1] == "tools/call")
at_once = sum(method == "initialize" for _session, method in Server.noted[lost:again])
calls = [session for session, method in Server.noted if method == "tools/call"]
told = [block for message in Model.asked[-1]["messages"] for block in message["content"] if "tool_use_id" in block]
failed = sum(block.get("is_error", False) for block in told)
print(f"sessions made of the lost one: {len(Server.made) - 1}, {at_once} before the next call; calls: {calls}; failed: {failed}")
ended = [session for session, method in Server.noted if method.startswith("DELETE")]
as_described = at_once >= 2 and len(calls) == CALLS and not failed and not ended and len(set(calls)) < len(Server.made)
sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
