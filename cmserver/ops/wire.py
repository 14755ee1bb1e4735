"""What several of the server's own routes show."""

from __future__ import annotations

import msgspec

from cmserver.base.ids import epoch_ms
from cmserver.generation.model import Pause


class PauseOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why a provider is left alone."""

    provider: str
    reason: str
    message: str
    paused_at_epoch: int
    until_epoch: int


def pause_out(pause: Pause) -> PauseOut:
    """The pause as it is shown."""
    return PauseOut(
        provider=pause.provider,
        reason=pause.reason,
        message=pause.message,
        paused_at_epoch=epoch_ms(pause.paused_at),
        until_epoch=epoch_ms(pause.until_at),
    )
