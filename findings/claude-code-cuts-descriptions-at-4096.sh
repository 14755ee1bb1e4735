#!/usr/bin/env bash
# Claude Code cuts an MCP tool's description and a server's instructions after 4,096 characters.
#
# Expected (the page "MCP" of Claude Code's documentation, as of September 2026: "truncates tool descriptions and server
# instructions at 2KB each"): the model gets 2,048 bytes of each.
# Guessed before the run: 2,048, of characters or bytes.
# Seen (Claude Code 2.1.332): the first 4,096 characters, then "… [truncated]". It is characters, not bytes: of ä there are
# 4,096 as well. The description of an argument, a part of the schema, has no limit.
# Why it matters: who writes for 2 KB gives half of what he could; and what the model is told of an argument is better kept
# there than in the description.
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
ARGUMENT = "p" * 9000
SCHEMA = {"type": "object", "properties": {"query": {"type": "string", "description": ARGUMENT}}}
LETTERS = {"latin": "a", "umlaut": "ä"}
TOOLS = [{"name": name, "description": letter * 9000, "inputSchema": SCHEMA} for name, letter in LETTERS.items()]


def call(_asked):
    return None


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
        answer["result"]["instructions"] = "i" * 9000
    elif method == "tools/list":
        answer["result"] = {"tools": TOOLS}
    elif method == "tools/call":
        answer["result"] = {"content": []}
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
env.update(ANTHROPIC_BASE_URL=serve(model), ANTHROPIC_API_KEY="none", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1")
remote = {"type": "http", "url": f"{serve(mcp)}/mcp", "alwaysLoad": True}
(WORK / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": remote}}))
command = [WORK / "node_modules/.bin/claude", "-p", "Go on", "--strict-mcp-config", "--mcp-config", WORK / "mcp.json"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")

offered = {tool["name"]: tool for tool in ASKED[0]["tools"]}
latin, umlaut = offered["mcp__notes__latin"], offered["mcp__notes__umlaut"]
told = json.dumps(ASKED[0])
instructions = next(size for size in range(9001, 0, -1) if "i" * size in told)
seen = {
    "latin": latin["description"].removesuffix("… [truncated]").count("a"),
    "umlaut": umlaut["description"].count("ä"),
    "instructions": instructions,
    "an argument's description": len(latin["input_schema"]["properties"]["query"]["description"]),
}
print("Claude Code 2.1.332, characters that reached the model, of 9,000 each:", seen)
as_described = [*seen.values()] == [4096, 4096, 4096, 9000]

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
