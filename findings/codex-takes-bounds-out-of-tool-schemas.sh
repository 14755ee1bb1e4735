#!/usr/bin/env bash
# Codex takes default, minimum, maximum, pattern and format out of an MCP tool's schema before its model sees it.
#
# Expected (MCP 2025-06-18, "Tools": inputSchema is the JSON Schema of the arguments): the model gets the schema as it is, as
# the models of Claude Code and OpenCode do.
# Guessed before the run: unchanged.
# Seen (Codex 0.171.0, a model that it has no metadata of): type, description, enum, required, $defs and minItems stay; default,
# minimum, maximum, exclusiveMinimum, multipleOf, pattern, minLength, maxLength, maxItems, uniqueItems, format, examples and
# title are gone, and const becomes an enum of one.
# Why it matters: a model that is never told of "at most 50" asks for 100 and is refused. What it should know has to stand in
# the description.
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
PROPERTIES = {
    "limit": {"type": "integer", "description": "How many", "minimum": 1, "maximum": 50, "default": 10},
    "since": {"type": "string", "format": "date-time", "title": "Since", "examples": ["2026-01-01T00:00:00Z"]},
    "kind": {"type": "string", "pattern": "^[a-z]+$", "minLength": 1, "maxLength": 9},
    "step": {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 5},
    "version": {"const": "v1"},
    "ids": {"type": "array", "items": {"$ref": "#/$defs/Id"}, "minItems": 1, "maxItems": 3, "uniqueItems": True},
}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["kind"], "$defs": {"Id": {"type": "integer"}}}
TOOLS = [{"name": "find", "description": "Finds notes", "inputSchema": SCHEMA}]


def items(_asked):
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
    elif method == "tools/list":
        answer["result"] = {"tools": TOOLS}
    elif method == "tools/call":
        answer["result"] = {"content": []}
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
(home / ".codex" / "config.toml").write_text(settings)
command = [WORK / "node_modules/.bin/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
command += ["Go on"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")

spaces = [tool for tool in ASKED[0]["tools"] if tool.get("name") == "mcp__notes"]
found = spaces[0]["tools"][0]["parameters"]
print("Codex 0.171.0:", json.dumps(found["properties"], indent=2))
as_described = found["required"] == ["kind"] and found["properties"] == {
    "limit": {"type": "integer", "description": "How many"},
    "since": {"type": "string"},
    "kind": {"type": "string"},
    "step": {"type": "integer"},
    "version": {"type": "string", "enum": ["v1"]},
    "ids": {"type": "array", "items": {"$ref": "#/$defs/Id"}, "minItems": 1},
}

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
