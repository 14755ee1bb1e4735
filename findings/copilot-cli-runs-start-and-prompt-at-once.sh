#!/usr/bin/env bash
# Copilot CLI starts the hook of the first prompt while that of the session's start still runs, and asks its model after both.
#
# Expected (GitHub's page on hooks, November 2026): a hook of sessionStart initialises environments and sets up resources, so it
# has ended when the hook of the first prompt begins. Claude Code runs them one after the other.
# Guessed before the run: with hooks that take three seconds each, UserPromptSubmit begins after SessionStart has ended.
# Seen (@github/copilot 1.0.102): UserPromptSubmit begins less than a second after SessionStart, beside it. The model is asked
# when both have ended, and Stop and SessionEnd run one after the other.
# Why it matters: what the hook of the start writes (a state, a session at a server) is not there yet for the hook of the prompt,
# and a server may take the prompt of a session before its start.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-audit --no-fund --loglevel=error @github/copilot@1.0.102 >/dev/null
WORK=$work python3 - <<'PYTHON'
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WORK = Path(os.environ["WORK"])
ASKED = []


class Model(BaseHTTPRequestHandler):
    """Plays OpenAI's chat completions: always the same words. Notes when it was asked."""

    def log_message(self, *_words):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        ASKED.append(time.time())
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "played"}
        said = {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Yes."}, "finish_reason": None}]}
        usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
        ended = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"data: {line}\n\n" for line in (json.dumps(said), json.dumps(ended), "[DONE]")).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
home, project, noted = WORK / "home", WORK / "project", WORK / "hooks.jsonl"
project.mkdir()
subprocess.run(["git", "init", "--quiet", project], check=True)
events = ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd")
hook = WORK / "hook.py"
hook.write_text(f"""
import json, sys, time
began, payload = time.time(), json.load(sys.stdin)
time.sleep(3)
open({str(noted)!r}, "a").write(json.dumps([payload["hook_event_name"], began, time.time()]) + "\\n")
print("{{}}")
""")
run = {"type": "command", "command": f"{sys.executable} {hook}"}
(home / ".copilot" / "hooks").mkdir(parents=True)
(home / ".copilot" / "hooks" / "note.json").write_text(json.dumps({"version": 1, "hooks": {event: [run] for event in events}}))
env = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "COPILOT_OFFLINE": "true"}
env.update(COPILOT_PROVIDER_BASE_URL=f"http://127.0.0.1:{server.server_port}/v1", COPILOT_PROVIDER_API_KEY="none")
env.update(COPILOT_MODEL="played", COPILOT_AUTO_UPDATE="false")
command = [WORK / "node_modules/.bin/copilot", "-p", "Is it done?"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")
times = {name: (began, end) for name, began, end in map(json.loads, noted.read_text().splitlines())}

start, prompt, stop, end = (times[event] for event in events)
print("Copilot CLI 1.0.102, seconds after SessionStart began:")
for event in events:
    print(f"  {event}: {times[event][0] - start[0]:.1f} to {times[event][1] - start[0]:.1f}")
print(f"  the model was asked: {ASKED[0] - start[0]:.1f}")
as_described = prompt[0] < start[1] and ASKED[0] > max(start[1], prompt[1]) and stop[0] > ASKED[0] and end[0] > stop[1]

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
