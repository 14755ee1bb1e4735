#!/usr/bin/env bash
# Gemini CLI takes the first page of an MCP server's tools for all of them.
#
# Expected (MCP 2025-06-18, "Pagination": a result with nextCursor has more behind it; tools/list is one of the paginated
# operations): all four tools are offered to the model, as Claude Code 2.1.332, Codex 0.171.0 and OpenCode 1.18.33 do.
# Guessed before the run: all pages are read.
# Seen (Gemini CLI 0.61.0): one tools/list, without a cursor; the two tools of the second page do not exist, and nothing is said
# about it.
# Why it matters: a server that gives its tools in pages loses some of them, in silence.
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
NAMES = ("one", "two", "three", "four")
TOOLS = [{"name": name, "description": "Finds notes", "inputSchema": {"type": "object"}} for name in NAMES]


def parts(_asked):
    return None


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
        first = int(params.get("cursor", 0))
        answer["result"] = {"tools": TOOLS[first : first + 2], **({"nextCursor": "2"} if first == 0 else {})}
    elif method == "tools/call":
        answer["result"] = {"content": []}
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
env.update(GEMINI_API_KEY="none", GOOGLE_GEMINI_BASE_URL=serve(model), GEMINI_CLI_TRUST_WORKSPACE="true")
settings = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
    "mcpServers": {"notes": {"httpUrl": f"{serve(mcp)}/mcp", "trust": True}},
}
(home / ".gemini").mkdir()
(home / ".gemini" / "settings.json").write_text(json.dumps(settings))
command = [WORK / "node_modules/.bin/gemini", "-m", "gemini-2.5-flash", "--yolo", "-p", "Go on"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")

declared = [tool["name"] for group in ASKED[0]["tools"] for tool in group["functionDeclarations"]]
offered = [name for name in declared if name.startswith("mcp_notes_")]
lists = [said.get("params") for said in NOTED if said["method"] == "tools/list"]
print("Gemini CLI 0.61.0 offers", offered, "after these requests for the list:", lists)
as_described = offered == ["mcp_notes_one", "mcp_notes_two"] and len(lists) == 1

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
