#!/usr/bin/env bash
# Gemini CLI adds an argument of its own to an MCP tool's schema, and sends it to the server, which does not know it.
#
# Expected (MCP 2025-06-18, "Tools": arguments conform to the tool's inputSchema): what the client adds for itself it takes out
# before the call; all the more from a schema that says additionalProperties: false.
# Guessed before the run: the argument is taken out, for the server and for the hooks.
# Seen (Gemini CLI 0.61.0): wait_for_previous, a boolean, is among the properties that the model is offered,
# additionalProperties: false or not. Given by the model, it is in tools/call as it is in tool_input of BeforeTool and
# AfterTool.
# Why it matters: a server that refuses unknown arguments refuses such a call; one that compares or stores arguments has one
# that nobody declared.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-audit --no-fund --loglevel=error @google/gemini-cli@0.61.0 >/dev/null
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
                self.wfile.write("".join(f"data: {json.dumps(event)}\n\n" for event in said).encode())
            elif said is not None:
                self.wfile.write(json.dumps(said).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


ASKED, NOTED = [], []
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "additionalProperties": False}
TOOLS = [{"name": "find", "description": "Finds notes", "inputSchema": SCHEMA}]
GIVEN = {"query": "tests", "wait_for_previous": True}


def parts(_asked):
    return [{"functionCall": {"name": "mcp_notes_find", "args": GIVEN}}] if len(ASKED) == 1 else None


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
    """Plays the Gemini API: what `parts(asked)` gives, or some words."""
    found = [{"text": "Done."}]
    if asked.get("tools"):
        ASKED.append(asked)
        found = parts(asked) or found
    answer = {"content": {"role": "model", "parts": found}, "finishReason": "STOP", "index": 0}
    return [{"candidates": [answer], "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 1, "totalTokenCount": 10}}]


home, project = WORK / "home", WORK / "project"
home.mkdir()
project.mkdir()
subprocess.run(["git", "init", "--quiet", project], check=True)
env = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
noted = WORK / "hooks.jsonl"
hook = WORK / "hook.py"
hook.write_text(f"import sys\nopen({str(noted)!r}, 'a').write(sys.stdin.read().strip() + '\\n')\n")
env.update(GEMINI_API_KEY="none", GOOGLE_GEMINI_BASE_URL=serve(model), GEMINI_CLI_TRUST_WORKSPACE="true")
run = {"type": "command", "command": f"{sys.executable} {hook}"}
settings = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
    "mcpServers": {"notes": {"httpUrl": f"{serve(mcp)}/mcp", "trust": True}},
    "hooks": {event: [{"hooks": [run]}] for event in ("BeforeTool", "AfterTool")},
}
(home / ".gemini").mkdir()
(home / ".gemini" / "settings.json").write_text(json.dumps(settings))
command = [WORK / "node_modules/.bin/gemini", "-m", "gemini-2.5-flash", "--yolo", "-p", "Go on"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")
events = [json.loads(line) for line in noted.read_text().splitlines()]

declared = [tool for group in ASKED[0]["tools"] for tool in group["functionDeclarations"] if tool["name"] == "mcp_notes_find"]
offered = declared[0]["parametersJsonSchema"]
called = [said["params"]["arguments"] for said in NOTED if said["method"] == "tools/call"]
hooks = [event["tool_input"] for event in events]
print("Gemini CLI 0.61.0 offers", sorted(offered["properties"]), "with additionalProperties", offered["additionalProperties"])
print("and sends", called, "and tells the hooks", hooks)
as_described = (
    sorted(offered["properties"]) == ["query", "wait_for_previous"]
    and offered["additionalProperties"] is False
    and called == [GIVEN]
    and hooks == [GIVEN, GIVEN]
)

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
