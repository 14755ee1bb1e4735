#!/usr/bin/env bash
# Copilot CLI drops the context of a hook that answers in the format of its payload, and takes one that its reference says is
# dropped.
#
# Expected (GitHub Copilot hooks reference, November 2026): an event whose name begins with a capital is in the format that
# fits VS Code's extension, in which context stands in hookSpecificOutput; so it is taken in a SessionStart hook. Of
# userPromptSubmitted "command and HTTP config-file hooks have their output dropped".
# Guessed before the run: the context of SessionStart reaches the model, and that of UserPromptSubmit does not.
# Seen (@github/copilot 1.0.102): the other way round. hookSpecificOutput.additionalContext of SessionStart does not reach the
# model, though the payload has hook_event_name and session_id. additionalContext at the top of UserPromptSubmit's answer
# stands behind the prompt, in a <system_reminder>.
# Why it matters: hooks written for Claude Code or VS Code run without a complaint and tell the model nothing; and who
# believes that a prompt's hook can say nothing to the model is wrong.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WORK = Path(os.environ["WORK"])
WORDS = "Refunds wait in a queue."
ASKED = []


class Model(BaseHTTPRequestHandler):
    """Plays OpenAI's chat completions: always the same words."""

    def log_message(self, *_words):
        pass

    def do_POST(self):
        ASKED.append(self.rfile.read(int(self.headers["content-length"])).decode())
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "played"}
        said = {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": WORDS}, "finish_reason": None}]}
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
answers = {
    "SessionStart": {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "said at the start"}},
    "UserPromptSubmit": {"additionalContext": "said with the prompt"},
}
hook = WORK / "hook.py"
hook.write_text(f"""
import json, sys
payload = json.load(sys.stdin)
open({str(noted)!r}, "a").write(json.dumps(payload) + "\\n")
print(json.dumps({answers!r}[payload["hook_event_name"]]))
""")
run = {"type": "command", "command": f"{sys.executable} {hook}"}
(home / ".copilot" / "hooks").mkdir(parents=True)
hooks = {event: [run] for event in answers}
(home / ".copilot" / "hooks" / "note.json").write_text(json.dumps({"version": 1, "hooks": hooks}))
env = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "COPILOT_OFFLINE": "true"}
env.update(COPILOT_PROVIDER_BASE_URL=f"http://127.0.0.1:{server.server_port}/v1", COPILOT_PROVIDER_API_KEY="none")
env.update(COPILOT_MODEL="played", COPILOT_AUTO_UPDATE="false")
command = [WORK / "node_modules/.bin/copilot", "-p", "Why are refunds slow?"]
ran = subprocess.run(command, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stdout[-500:]}{ran.stderr[-500:]}")
payloads = [json.loads(line) for line in noted.read_text().splitlines()]

names = [payload["hook_event_name"] for payload in payloads]
texts = zip(answers, ("said at the start", "said with the prompt"))
reached = {name: any(text in asked for asked in ASKED) for name, text in texts}
print("Copilot CLI 1.0.102 calls", names, "with session_id:", all("session_id" in payload for payload in payloads))
print("What they answered reached the model:", reached)
as_described = (
    names == ["SessionStart", "UserPromptSubmit"]
    and all("session_id" in payload for payload in payloads)
    and reached == {"SessionStart": False, "UserPromptSubmit": True}
)

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
