"""Money on the wire."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from msgspec import Meta

Usd = Annotated[str, Meta(pattern=r"^(?:[1-9]\d{0,8}(?:\.\d{1,6})?|0\.0{0,5}[1-9]\d{0,5})$")]
"""US dollars as decimal text, more than nothing. Not a JSON number: most readers make a binary fraction of that."""


def usd(amount: Decimal) -> str:
    """An amount to the millionth of a dollar, with two decimals at least: `0.00`, `12.50`, `0.000067`."""
    whole, _, fraction = f"{amount:.6f}".partition(".")
    return f"{whole}.{fraction[:2]}{fraction[2:].rstrip('0')}"
