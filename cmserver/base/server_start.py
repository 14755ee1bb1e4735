"""How this server was started: what a change of its settings while it runs has to know."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

RELOAD_SIGNAL = signal.SIGUSR1
"""Makes the first process of `cmserver run` read the settings of the model anew. Not SIGHUP, by which a terminal ends it."""


class ServerStart(msgspec.Struct, frozen=True, kw_only=True):
    """Made by `cmserver run`; as it is by default, its settings can be read but not changed from inside."""

    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)
    config_file: Path | None = None
    """What `--config` names."""
    reload: Callable[[], None] | None = None
    """Lets all processes of the server begin anew, with the settings of the model as they are now.

    None where the API and the workers were started apart, or nothing runs.
    """
    not_reloaded: str | None = None
    """Why the settings that were there at the last reload could not be used; None if they could."""
