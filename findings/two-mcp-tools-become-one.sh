#!/usr/bin/env bash
# Of two MCP tools, note.find and note_find, Claude Code keeps the one that was listed first, OpenCode the one that was listed
# last.
#
# Expected (MCP 2025-11-25, "Tools": names may have letters, digits, underscore, hyphen and dot, and are unique within a
# server): two tools, or a word that one is left out.
# Guessed before the run: in both clients the later one wins.
# Seen (Claude Code 2.1.332, opencode-ai 1.18.33): the dot becomes an underscore, both have one name, and one tool is gone in
# silence. Claude Code offers and calls the first of the list, OpenCode the last. (Codex 0.171.0 gives both a suffix; Gemini CLI
# 0.61.0 keeps the dot.)
# Why it matters: which tool a model reaches depends on the client and on the order of the list; names that differ by a dot and
# an underscore are no two names.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-audit --no-fund --loglevel=error @anthropic-ai/claude-code@2.1.332 opencode-ai@1.18.33 >/dev/null
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


TOOLS, NOTED, ASKED = [], [], []


def call(asked):
    names = [tool["name"] for tool in asked["tools"] if "note_find" in tool["name"]]
    return names[0]


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


def reached(client, order):
    """The descriptions of the tools that are offered, and the names of those that are called at the server."""
    TOOLS[:] = [{"name": name, "description": f"This is {name}", "inputSchema": {"type": "object"}} for name in order]
    NOTED.clear()
    ASKED.clear()
    command = clients[client]
    ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    if ran.returncode:
        sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")
    offered = [tool["description"] for tool in ASKED[0]["tools"] if "note_find" in tool["name"]]
    called = [said["params"]["name"] for said in NOTED if said["method"] == "tools/call"]
    print(client, "of", order, "offers", offered, "and calls", called)
    return offered, called


home, project = WORK / "home", WORK / "project"
home.mkdir()
project.mkdir()
subprocess.run(["git", "init", "--quiet", project], check=True)
env = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
env.update(ANTHROPIC_BASE_URL=serve(model), ANTHROPIC_API_KEY="none", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
remote = {"type": "http", "url": f"{serve(mcp)}/mcp", "alwaysLoad": True}
(WORK / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": remote}}))
claude = [WORK / "node_modules/.bin/claude", "-p", "Go on", "--strict-mcp-config", "--mcp-config", WORK / "mcp.json"]
claude += ["--allowedTools", "mcp__notes__note_find"]
env.update(OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_MODELS_FETCH="1", OPENCODE_DISABLE_LSP_DOWNLOAD="1")
options = {"baseURL": f"{serve(model)}/v1", "apiKey": "none"}
played = {"npm": "@ai-sdk/anthropic", "name": "played", "options": options, "models": {"model": {"name": "played"}}}
remote = {"type": "remote", "url": f"{serve(mcp)}/mcp", "enabled": True}
settings = {"share": "disabled", "autoupdate": False, "provider": {"played": played}, "mcp": {"notes": remote}}
(home / ".config" / "opencode").mkdir(parents=True)
(home / ".config" / "opencode" / "opencode.json").write_text(json.dumps(settings))
opencode = [WORK / "node_modules/.bin/opencode", "run", "--model", "played/model", "Go on"]
clients = {"Claude Code 2.1.332": claude, "OpenCode 1.18.33": opencode}
as_described = True
for order in (["note.find", "note_find"], ["note_find", "note.find"]):
    for client, kept in zip(clients, order, strict=True):  # the first by Claude Code, the last by OpenCode
        as_described &= reached(client, order) == ([f"This is {kept}"], [kept])

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
