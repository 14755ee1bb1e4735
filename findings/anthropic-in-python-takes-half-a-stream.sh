#!/usr/bin/env bash
# A streamed answer that ends in its middle is a finished message for Anthropic's SDK in Python; its SDK in TypeScript refuses it.
#
# Expected (Anthropic's page "Streaming Messages": a stream ends with message_stop; the SDK's helpers.md: get_final_message()
# waits until the stream has been read to completion): where message_stop did not come, both SDKs raise an error.
# Guessed before the run: an error in both; perhaps the request is sent again.
# Seen (anthropic 2.15.0, @anthropic-ai/sdk 1.15.0): of a stream that is cut after some words, while its HTTP body is ended well,
# Python's get_final_message() gives the words so far, and the tool runner's until_done() returns them as the last message. Of a
# tool's call it gives an input without the argument that was being written. Nothing is raised, only stop_reason is None.
# TypeScript's finalMessage() throws "stream ended without producing a Message". In a loop over the events both just end.
# Why it matters: proxies that give up, and servers that are stopped, often end the body well. A summary that was cut is then
# kept as a whole one, and a program that runs the tool uses of a message runs one with half of its input. Look at stop_reason.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -qq --disable-pip-version-check --target "$work/lib" anthropic==2.15.0
npm install --prefix "$work" --no-audit --no-fund --loglevel=error @anthropic-ai/sdk@1.15.0 >/dev/null
cat >"$work/final.mjs" <<'JAVASCRIPT'
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.argv[2], apiKey: "none" });
const asked = { model: "played", max_tokens: 99, messages: [{ role: "user", content: "Go on" }] };
try {
  console.log(JSON.stringify((await client.messages.stream(asked).finalMessage()).content));
} catch (error) {
  console.log(`${error.constructor.name}: ${error.message}`);
}
const types = [];
for await (const event of await client.messages.create({ ...asked, stream: true })) types.push(event.type);
console.log(types.at(-1));
JAVASCRIPT
WORK=$work PYTHONPATH=$work/lib python3 - <<'PYTHON'
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic

WORDS = {"type": "text", "text": ""}, {"type": "text_delta", "text": "Refunds wait"}
HALF = '{"folder": "notes", "text": "Refunds wait'
USE = {"type": "tool_use", "id": "toolu_1", "name": "keep", "input": {}}, {"type": "input_json_delta", "partial_json": HALF}
USAGE = {"input_tokens": 9, "output_tokens": 1}
ASKED = []


class Model(BaseHTTPRequestHandler):
    """Plays the Messages API: at /words and /use the beginning of an answer, at /whole all of one. Each body is ended well."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_words):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        ASKED.append(asked)
        block, delta = USE if self.path.startswith("/use") else WORDS
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": [], "usage": USAGE}
        events = [
            {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
        ]
        if self.path.startswith("/whole"):
            events += [
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": USAGE},
                {"type": "message_stop"},
            ]
        body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))


@anthropic.beta_tool
def keep(folder: str, text: str = "") -> str:
    """Keeps a text in a folder."""
    return f"{text} is kept in {folder}"


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
ASK = {"model": "played", "max_tokens": 99, "messages": [{"role": "user", "content": "Go on"}]}


def kept(message):
    """What stands in it, and why it stopped."""
    return [block.text if block.type == "text" else block.input for block in message.content], message.stop_reason


def in_python(client):
    ASKED.clear()
    try:
        with client.messages.stream(**ASK) as stream:
            final = kept(stream.get_final_message())
        last = [event.type for event in client.messages.create(stream=True, **ASK)][-1]
        ran = kept(client.beta.messages.tool_runner(tools=[keep], stream=True, **ASK).until_done())
    except anthropic.AnthropicError as error:
        return f"{type(error).__name__}: {error}"
    return final, last, ran, len(ASKED)


def in_typescript(address):
    command = ["node", f"{os.environ['WORK']}/final.mjs", address]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if ran.returncode:
        sys.exit(f"It did not run: {ran.stderr[-500:]}")
    return tuple(ran.stdout.splitlines())


REFUSED = "AnthropicError: stream ended without producing a Message with role=assistant"
words, use = (["Refunds wait"], None), ([{"folder": "notes"}], None)
whole, block = (["Refunds wait"], "end_turn"), '[{"type":"text","text":"Refunds wait"}]'
EXPECTED = {
    "whole": ((whole, "message_stop", whole, 3), (block, "message_stop")),
    "words": ((words, "content_block_delta", words, 3), (REFUSED, "content_block_delta")),
    "use": ((use, "content_block_delta", use, 3), (REFUSED, "content_block_delta")),
}
print("anthropic", anthropic.__version__, "and @anthropic-ai/sdk 1.15.0: the final message, the last event, and of Python")
print("also the tool runner's last message and the number of requests")
os.environ.update(NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
as_described = True
for path, expected in EXPECTED.items():
    address = f"http://127.0.0.1:{server.server_port}/{path}"
    seen = in_python(anthropic.Anthropic(base_url=address, api_key="none")), in_typescript(address)
    print(f"{path}: in Python {seen[0]}; in TypeScript {seen[1]}")
    as_described &= seen == expected

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
