"""The event that is sent again and again: a file edit of two kilobytes, as a coding agent's hook reports it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

BODY_BYTES = 2048
_NUMBER = "############"
_CODE = '''    async def fetch(self, order_id: str) -> Order:
        """The order, after as many attempts as the client was told to make."""
        for attempt in range(self.attempts):
            response = await self.session.get(f"{self.base_url}/orders/{order_id}", timeout=self.timeout_seconds)
            if response.status_code < 500:
                return Order.from_json(response.json())
            await asyncio.sleep(min(self.pause_seconds * 2**attempt, self.longest_pause_seconds))
        raise OrderUnavailable(f"The order {order_id} could not be fetched.")
'''
_FILLING = "        # The pause between two attempts is doubled each time.\n" * 20

Numbered = Callable[[int], bytes]
"""The same text with this number in it, so that no two are the same event."""


def session_name(place: int) -> str:
    """How the agent calls its session."""
    return f"bench-session-{place:03}"


def body(project: str, session: str) -> Numbered:
    """The request body of one event, of BODY_BYTES."""
    return _numbered(_event(project, session))


def payload(project: str, session: str) -> Numbered:
    """The payload of that event, as it is stored."""
    return _numbered(_event(project, session)["payload"])


def _event(project: str, session: str) -> dict[str, object]:
    missing = BODY_BYTES - len(msgspec.json.encode(_filled(project, session, "")))
    filling = _FILLING
    while len(msgspec.json.encode(filling)) - 2 > missing:
        filling = filling[:-1]
    return _filled(project, session, filling + "x" * (missing - len(msgspec.json.encode(filling)) + 2))


def _filled(project: str, session: str, filling: str) -> dict[str, object]:
    file = "/home/dev/orders/src/orders/client.py"
    return {
        "projectId": project,
        "contentSessionId": session,
        "sourceType": "hook",
        "eventType": "PostToolUse",
        "payload": {
            "tool_name": "Edit",
            "tool_use_id": f"toolu_{_NUMBER}",
            "cwd": "/home/dev/orders",
            "tool_input": {"file_path": file, "old_string": "    pass\n", "new_string": _CODE + filling},
            "tool_response": {"filePath": file, "success": True},
        },
    }


def _numbered(value: object) -> Numbered:
    before, after = msgspec.json.encode(value).split(_NUMBER.encode())
    return lambda number: b"%s%012d%s" % (before, number, after)
