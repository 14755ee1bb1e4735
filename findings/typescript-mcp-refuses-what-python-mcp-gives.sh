#!/usr/bin/env bash
# MCP's client in TypeScript refuses times and durations that a typed tool of MCP's server in Python gives, and its text with
# them.
#
# Expected (JSON Schema 2020-12, Validation, 7.2.1: format is an annotation, and fails nothing by default; MCP 2025-11-25,
# "Tools": clients should validate structured results): what the server makes of a type, by the schema that it makes of that
# type, all clients hand on.
# Guessed before the run: the client in TypeScript refuses a datetime or time without an offset, and takes each timedelta.
# Seen (mcp 2.3.0, pydantic 2.14.4, @modelcontextprotocol/client 2.4.0): it refuses these two, and a timedelta that is negative
# or has a fraction of a second: the schema says format "duration", and -P1D and PT1.5S are none in RFC 3339, Appendix A. No part
# of the result is handed on. The client in Python takes all of them. (Of a datetime without an offset the models of Gemini CLI
# 0.61.0 and OpenCode 1.18.33 get the refusal in place of the answer; those of Claude Code 2.1.332 and Codex 0.171.0 get the
# answer.)
# Why it matters: whether a tool works depends on the client and on the value: 1.5 seconds fail where one second did not. Tests
# of a server in Python with the client in Python never see it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -qq --disable-pip-version-check --target "$work/lib" mcp==2.3.0 pydantic==2.14.4
npm install --prefix "$work" --no-audit --no-fund --loglevel=error @modelcontextprotocol/client@2.4.0 >/dev/null
cat >"$work/server.py" <<'PYTHON'
from datetime import date, datetime, time, timedelta, timezone

from mcp.server import MCPServer
from pydantic import create_model

NOON = datetime(2026, 11, 28, 12)
VALUES = {
    "day": date(2026, 11, 28),
    "datetime": NOON.replace(tzinfo=timezone.utc),
    "datetime without an offset": NOON,
    "time without an offset": time(12),
    "one second": timedelta(seconds=1),
    "one and a half seconds": timedelta(seconds=1.5),
    "a day less": timedelta(days=-1),
}
server = MCPServer("types")


def offer(name, value):
    """A tool of this name, which is typed, and gives this value."""
    Answer = create_model("Answer", value=(type(value), ...))

    def give() -> Answer:
        return Answer(value=value)

    server.tool(name=name.replace(" ", "_"))(give)


for name, value in VALUES.items():
    offer(name, value)
server.run()
PYTHON
cat >"$work/client.mjs" <<'JAVASCRIPT'
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "finding", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const seen = {};
for (const { name } of (await client.listTools()).tools) {
  try {
    seen[name] = (await client.callTool({ name, arguments: {} })).structuredContent.value;
  } catch (error) {
    seen[name] = error.message;
  }
}
console.log(JSON.stringify(seen));
await client.close();
JAVASCRIPT
WORK=$work PYTHONPATH=$work/lib python3 - <<'PYTHON'
import asyncio
import json
import os
import subprocess
import sys
from importlib.metadata import version

from mcp import Client, StdioServerParameters, stdio_client

WORK = os.environ["WORK"]
SERVER = [sys.executable, f"{WORK}/server.py"]


async def by_python():
    start = StdioServerParameters(command=SERVER[0], args=SERVER[1:], env={"PYTHONPATH": os.environ["PYTHONPATH"]})
    async with Client(stdio_client(start)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        return {name: (await client.call_tool(name, {})).structured_content["value"] for name in names}


taken = asyncio.run(by_python())
ran = subprocess.run(["node", f"{WORK}/client.mjs", *SERVER], capture_output=True, text=True, timeout=300)
if ran.returncode:
    sys.exit(f"It did not run: {ran.stderr[-500:]}")
typescript = json.loads(ran.stdout)
print("mcp", version("mcp"), "with pydantic", version("pydantic"), "and @modelcontextprotocol/client 2.4.0")
for name, value in taken.items():
    print(f"{name}: {value} in Python; in TypeScript: {typescript[name]}")
refused = [name for name, value in taken.items() if typescript[name] != value]
EXPECTED = ["datetime_without_an_offset", "time_without_an_offset", "one_and_a_half_seconds", "a_day_less"]
as_described = refused == EXPECTED and all("must match format" in typescript[name] for name in refused)
sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
