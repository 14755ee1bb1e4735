#!/usr/bin/env bash
# Codex without a person answers an MCP server's questions as if a person had: a form without fields is accepted, one with a
# field declined.
#
# Expected (MCP 2025-06-18, "Elicitation": accept means that the user explicitly approved, decline that he explicitly refused,
# cancel that he made no choice): codex exec, where nobody can be asked, does not declare elicitation, or answers cancel.
# Guessed before the run: cancel; after a first run had shown decline, decline for each form.
# Seen (Codex 0.171.0, codex exec --dangerously-bypass-approvals-and-sandbox): it declares elicitation, form and url. A form with
# a field is declined, also if the field is optional; one without fields, by which a server asks for a yes, is accepted. (Claude
# Code 2.1.332 with -p answers cancel to both.)
# Why it matters: neither answer can be told from a person's. A server that notes who agreed notes a person who was never asked,
# and one that remembers a no does not ask again when somebody is there.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-audit --no-fund --loglevel=error @openai/codex@0.171.0 >/dev/null
cat >"$work/server.py" <<'PYTHON'
"""An MCP server whose tool asks the question of its form first, and answers with what it is told."""

import json
import sys

FORMS = {
    "no_field": {"type": "object", "properties": {}},
    "optional_field": {"type": "object", "properties": {"reason": {"type": "string"}}},
    "required_field": {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]},
}


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


called = None
for line in sys.stdin:
    said = json.loads(line)
    method, number = said.get("method"), said.get("id")
    if method == "initialize":
        print(json.dumps(said["params"]["capabilities"].get("elicitation")), file=open(sys.argv[1], "w"), flush=True)
        server = {"name": "notes", "version": "1"}
        send(id=number, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server})
    elif method == "tools/list":
        tools = [{"name": name, "description": f"Asks with {name}", "inputSchema": {"type": "object"}} for name in FORMS]
        send(id=number, result={"tools": tools})
    elif method == "tools/call":
        called = number
        question = {"message": "Shall these two notes become one?", "requestedSchema": FORMS[said["params"]["name"]]}
        send(id="question", method="elicitation/create", params=question)
    elif number == "question":
        send(id=called, result={"content": [{"type": "text", "text": "ANSWER " + json.dumps(said.get("result"))}]})
PYTHON
WORK=$work python3 - <<'PYTHON'
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WORK = Path(os.environ["WORK"])
TOOLS = ["no_field", "optional_field", "required_field"]
ASKED = []


class Model(BaseHTTPRequestHandler):
    """Plays the Responses API: calls one tool after the other, then says some words."""

    def log_message(self, *_words):
        pass

    def do_GET(self):
        self.send_error(405)

    def do_POST(self):
        ASKED.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        number = len(ASKED)
        output = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done.", "annotations": []}]}
        if number <= len(TOOLS):
            call = {"call_id": f"call_{number}", "namespace": "mcp__notes", "name": TOOLS[number - 1], "arguments": "{}"}
            output = {"type": "function_call", "id": f"fc_{number}", **call}
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        usage = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10, **details}
        events = [
            {"type": "response.created", "response": {"id": f"resp_{number}"}},
            {"type": "response.output_item.done", "output_index": 0, "item": output},
            {"type": "response.completed", "response": {"id": f"resp_{number}", "output": [output], "usage": usage}},
        ]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
home, project = WORK / "home", WORK / "project"
(home / ".codex").mkdir(parents=True)
project.mkdir()
subprocess.run(["git", "init", "--quiet", project], check=True)
env = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
env.update(CODEX_HOME=str(home / ".codex"), PLAYED_KEY="none")
(home / ".codex" / "config.toml").write_text(f"""
model = "gpt-5"
model_provider = "played"
[model_providers.played]
name = "played"
base_url = "http://127.0.0.1:{server.server_port}/v1"
wire_api = "responses"
env_key = "PLAYED_KEY"
[analytics]
enabled = false
[mcp_servers.notes]
command = "{sys.executable}"
args = ["{WORK}/server.py", "{WORK}/declared"]
""")
command = [WORK / "node_modules/.bin/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Go on"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")

outputs = [json.dumps(item["output"]) for item in ASKED[-1]["input"] if item["type"] == "function_call_output"]
answers = [next((word for word in ("accept", "decline", "cancel") if word in output), output) for output in outputs]
declared = json.loads((WORK / "declared").read_text())
print("Codex 0.171.0 declares elicitation", declared)
print("and answers, with nobody asked:", dict(zip(TOOLS, answers, strict=True)))
as_described = answers == ["accept", "decline", "decline"] and sorted(declared) == ["form", "url"]
sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
