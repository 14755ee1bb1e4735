#!/usr/bin/env bash
# Codex applies a patch that its model gives to the shell, and sends no PostToolUse for it.
#
# Expected (the page "Hooks" of Codex's documentation: PostToolUse comes after Bash, apply_patch and MCP tools; it also says
# that not each path of the shell is covered): a PostToolUse, either of Bash or of apply_patch, all the more as PreToolUse came.
# Guessed before the run: both hooks call it apply_patch.
# Seen (Codex 0.171.0): `apply_patch <<'EOF' …` as a command sends PreToolUse of Bash, the file is written, and no PostToolUse
# follows. The next command sends both.
# Why it matters: a recorder that takes PostToolUse never hears of the file; the tool use stays open. The rollout has it as a
# file change.
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
PATCH = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: notes.txt\n+one line\n*** End Patch\nEOF"


def items(_asked):
    commands = [PATCH, "cat notes.txt"]
    number = len(ASKED) - 1
    return [function_call(number, "exec_command", {"cmd": commands[number]})] if number < len(commands) else None


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
for event in ("PreToolUse", "PostToolUse"):
    settings += f'[[hooks.{event}]]\n[[hooks.{event}.hooks]]\ntype = "command"\ncommand = "{sys.executable} {hook}"\n'
(home / ".codex" / "config.toml").write_text(settings)
command = [WORK / "node_modules/.bin/codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
command += ["--dangerously-bypass-hook-trust", "Go on"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")
events = [json.loads(line) for line in noted.read_text().splitlines()]

seen = [(event["hook_event_name"], event["tool_name"], event["tool_input"]["command"].split()[0]) for event in events]
written = (project / "notes.txt").exists()
print("Codex 0.171.0; the file is", "written" if written else "missing", "and the hooks were", seen)
shell = [("PreToolUse", "Bash", "apply_patch"), ("PreToolUse", "Bash", "cat"), ("PostToolUse", "Bash", "cat")]
as_described = written and seen == shell

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
