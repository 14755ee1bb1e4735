"""How a calibration looks on the wire."""

from __future__ import annotations

import msgspec


class CalibrationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a cosine of the embedder means in the team's documents, measured with so many of its `titles`.

    The log-odds that a title is one of the project are `intercept + slope * cosine`, of the title and its nearest document.
    `intercept` is the log-odds at a cosine of 0; `slope` is what a cosine of 1 adds to the log-odds. At `evenCosine` both are as
    likely.
    """

    embedder: str
    model: str
    titles: int
    intercept: float
    slope: float
    even_cosine: float
