"""What hook.sh sends with where there is no curl: Python's standard library, and nothing of cmserver.

    send.py ask SECONDS METHOD URL HEADERS_FILE HEADERS BODY    prints the answer, and in a last line its status and content type
    send.py drain SECONDS URL NAME...                           sends what waits until one fails; a line of the same kind for each
    send.py mcp URL PROJECT [PRIVATE]                           passes lines of MCP on; without a URL there are no tools

BODY is a file, `-` for stdin, or empty. The key is read from `authorization` in the working folder, for arguments are seen by all.
"""

from __future__ import annotations

import os
import signal
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

ANSWER_BYTES = 1_000_000
MCP_SECONDS = 120.0

Message = dict[str, Any]
"""A message of JSON-RPC."""


def headers_of(text: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in text.splitlines() if b":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def exchange(method: str, url: str, headers: dict[bytes, bytes], body: bytes | None) -> tuple[bytes, str]:
    """The answer, and its status and content type. It follows no redirect and asks no proxy."""
    place = urlsplit(url)
    kind = HTTPSConnection if place.scheme == "https" else HTTPConnection
    connection = kind(place.hostname or "", place.port)
    try:
        connection.putrequest(method, place.path, skip_accept_encoding=True)
        if body is not None:
            headers = {**headers, b"Content-Type": b"application/json", b"Content-Length": b"%d" % len(body)}
        for name, value in headers.items():
            connection.putheader(name.decode("ascii"), value)
        connection.endheaders(body)
        response = connection.getresponse()
        answer = response.read(ANSWER_BYTES + 1)
        if len(answer) > ANSWER_BYTES:
            raise HTTPException
        return answer, f"{response.status} {response.headers.get('content-type', '')}"
    finally:
        connection.close()


def ask(seconds: str, method: str, url: str, headers_file: str, headers: str, body: str) -> None:
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    text = Path(headers_file).read_bytes() if headers_file else headers.encode(errors="surrogateescape")
    sent = sys.stdin.buffer.read() if body == "-" else Path(body).read_bytes() if body else None
    answer, line = exchange(method, url, {**headers_of(text), **headers_of(Path("authorization").read_bytes())}, sent)
    sys.stdout.buffer.write(answer + b"\n" + line.encode())


def drain(seconds: str, url: str, *names: str) -> None:
    key = headers_of(Path("authorization").read_bytes())
    for name in names:
        signal.setitimer(signal.ITIMER_REAL, float(seconds))
        headers = {**headers_of(Path(f"spool/{name}.head").read_bytes()), **key, b"X-Cmserver-Late": b"1"}
        _, line = exchange("POST", url, headers, Path(f"spool/{name}.body").read_bytes())
        print(line, flush=True)  # noqa: T201 - hook.sh reads it
        if not line.startswith("2"):
            return


def mcp(url: str, project: str, private: str = "") -> None:
    """Answers an MCP client's lines, one after the other, with what the server answers."""
    import json  # noqa: PLC0415 - the other commands need to start fast

    headers = headers_of(Path("authorization").read_bytes()) if url else {}
    headers |= {b"Accept": b"application/json, text/event-stream"}
    headers |= {b"X-Cmserver-Project": os.fsencode(project)} if project else {}
    headers |= {b"X-Cmserver-Private": b"1"} if private else {}
    for line in sys.stdin.buffer:
        try:
            message: Message = json.loads(line)
            method, wanted = message.get("method"), message.get("id")
        except (ValueError, AttributeError, RecursionError):
            continue
        if not url or method == "server/discover":  # of the era without `initialize`, whose headers are not made here
            answer = answer_without_server(method, message)
        else:
            signal.setitimer(signal.ITIMER_REAL, MCP_SECONDS)
            try:
                body, status = exchange("POST", f"{url}/mcp", headers, line)
                signal.setitimer(signal.ITIMER_REAL, 0)
                answer = json.loads(body) if body.startswith(b"{") else refusal(-32603, f"The server says {status.split()[0]}.")
            except (OSError, HTTPException, ValueError, RecursionError) as error:
                answer = refusal(-32603, f"The server does not answer ({type(error).__name__}).")
            signal.setitimer(signal.ITIMER_REAL, 0)
        if not {"result", "error"} & answer.keys():  # what the server says is no JSON-RPC
            answer = refusal(-32603, "The server has no answer: is the key right?")
        if method == "initialize" and isinstance(answer.get("result"), dict):
            headers[b"MCP-Protocol-Version"] = str(answer["result"].get("protocolVersion")).encode("ascii", "ignore")
        if wanted is not None:
            print(json.dumps({**answer, "jsonrpc": "2.0", "id": wanted}), flush=True)  # noqa: T201 - the client reads it


def answer_without_server(method: object, message: Message) -> Message:
    """What a server without anything answers."""
    if method == "initialize":
        params: Message = message.get("params") or {}
        version = params.get("protocolVersion", "2025-11-25")
        about = {"name": "cmserver", "version": "0"}
        return {"result": {"protocolVersion": version, "capabilities": {}, "serverInfo": about}}
    return {"result": {}} if method == "ping" else refusal(-32601, "Method not found")


def refusal(code: int, sentence: str) -> Message:
    return {"error": {"code": code, "message": sentence}}


def too_late(_signal: int, _frame: object) -> NoReturn:
    raise TimeoutError


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, too_late)
    try:
        {"ask": ask, "drain": drain, "mcp": mcp}[sys.argv[1]](*sys.argv[2:])
    except (OSError, HTTPException, ValueError) as error:
        sys.exit(60 if type(error).__name__ == "SSLCertVerificationError" else 1)  # as curl does
