#!/usr/bin/env bash
# Cline's command line never runs the hook UserPromptSubmit for the prompt that it is given, and no other hook has that
# prompt.
#
# Expected (Cline's documentation, "Hooks": UserPromptSubmit runs when you submit a message, TaskStart when you start a new
# task): for cline "PROMPT" UserPromptSubmit runs once, with the prompt.
# Guessed before the run: it runs once, before or after TaskStart.
# Seen (cline 3.0.65): TaskStart, PreToolUse, PostToolUse and TaskComplete run. UserPromptSubmit, a file with the same text
# and rights in the same folder, does not, and the prompt stands in no payload: taskMetadata of TaskStart is empty.
# Why it matters: a hook that notes, checks or forbids what is asked of the agent is silently left out wherever Cline runs in
# a script.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --prefix "$work" --no-audit --no-fund --loglevel=error cline@3.0.65 >/dev/null
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
PROMPT = "Why are refunds slow?"
ASKED = []
SHELL = {"name": "run_commands", "arguments": '{"commands":["echo paid"]}'}
CALL = {"index": 0, "id": "call_1", "type": "function", "function": SHELL}


class Model(BaseHTTPRequestHandler):
    """Plays OpenAI's chat completions: a call of the shell first, then some words."""

    def log_message(self, *_words):
        pass

    def do_POST(self):
        ASKED.append(self.rfile.read(int(self.headers["content-length"])).decode())
        is_first = len(ASKED) == 1
        delta = {"role": "assistant", "content": "" if is_first else "Done.", **({"tool_calls": [CALL]} if is_first else {})}
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "played"}
        said = {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        usage = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
        reason = "tool_calls" if is_first else "stop"
        ended = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"data: {line}\n\n" for line in (json.dumps(said), json.dumps(ended), "[DONE]")).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
home, project, noted = WORK / "home", WORK / "project", WORK / "noted"
project.mkdir()
noted.mkdir()
subprocess.run(["git", "init", "--quiet", project], check=True)
hooks = home / ".cline" / "hooks"
hooks.mkdir(parents=True)
for event in ("TaskStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "TaskComplete"):
    (hooks / event).write_text(f'#!/bin/sh\ncat >"{noted}/$(basename "$0")"\necho "{{}}"\n')
    (hooks / event).chmod(0o755)
env = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "DO_NOT_TRACK": "1"}


def cline(*words):
    command = [WORK / "node_modules/.bin/cline", *words]
    ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    if ran.returncode:
        sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")


url = f"http://127.0.0.1:{server.server_port}/v1"
cline("auth", "openai-compatible", "--apikey", "none", "--modelid", "played", "--baseurl", url)
cline(PROMPT, "--provider", "openai-compatible")
until = time.monotonic() + 60  # some hooks run beside the program, and may outlive it
while not (noted / "TaskComplete").exists() and time.monotonic() < until:
    time.sleep(0.2)
time.sleep(5)

ran = sorted(file.name for file in noted.iterdir())
has_prompt = [name for name in ran if PROMPT in (noted / name).read_text()]
print("Cline 3.0.65 ran the hooks", ran)
print("The model was given the prompt:", PROMPT in ASKED[0], "and of the hooks these were:", has_prompt)
as_described = ran == ["PostToolUse", "PreToolUse", "TaskComplete", "TaskStart"] and PROMPT in ASKED[0] and not has_prompt

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
