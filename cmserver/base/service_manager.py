"""Tells systemd how the process is, by its protocol of datagrams (sd_notify). Elsewhere nothing happens."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping

READY = "READY=1"
STOPPING = "STOPPING=1"
_ALIVE = "WATCHDOG=1"


def notify_service_manager(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Send the state, such as READY, if a service manager listens. A failure changes nothing: systemd's time limits see it."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        try:
            sender.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
        except OSError:
            return


def watchdog_seconds(environ: Mapping[str, str] = os.environ) -> float | None:
    """How often systemd wants to hear that this process is alive; None when it does not."""
    period = environ.get("WATCHDOG_USEC", "")
    is_meant = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(period) / 1_000_000 if is_meant and period.isdigit() and int(period) > 0 else None


async def keep_watchdog_quiet(environ: Mapping[str, str] = os.environ) -> None:
    """Report twice in each period that the event loop turns, until cancelled; returns at once without a watchdog."""
    seconds = watchdog_seconds(environ)
    while seconds is not None:
        notify_service_manager(_ALIVE, environ)
        await asyncio.sleep(seconds / 2)
