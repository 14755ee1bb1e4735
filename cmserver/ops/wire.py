"""What several of the server's own routes show."""

from __future__ import annotations

import msgspec

from cmserver.access.model import Principal
from cmserver.base.ids import epoch_ms
from cmserver.generation.model import Pause
from cmserver.providers.meaning import MEANINGS


class PauseOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why a provider is left alone. The provider's own words are for keys of the scope `*`: they may quote anybody's request."""

    provider: str
    reason: str
    message: str
    paused_at_epoch: int
    until_epoch: int


def pause_out(pause: Pause, who: Principal) -> PauseOut:
    """The pause as it is shown to the principal."""
    return PauseOut(
        provider=pause.provider,
        reason=pause.reason,
        message=pause.message if who.may("*") else f"{pause.provider} {_what(pause.reason)}.",
        paused_at_epoch=epoch_ms(pause.paused_at),
        until_epoch=epoch_ms(pause.until_at),
    )


def _what(reason: str) -> str:
    """What has happened, whatever psql may have written there."""
    return next((meaning.what for kind, meaning in MEANINGS.items() if kind.value == reason), "is paused")
