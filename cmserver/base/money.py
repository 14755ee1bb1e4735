"""Money on the wire: decimal text. Not a JSON number, of which most readers make a binary fraction."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from cmserver.base.text import matching

Usd = Annotated[
    str,
    matching(
        r"^(?:[1-9]\d{0,8}(?:\.\d{1,6})?|0\.0{0,5}[1-9]\d{0,5})$",
        "Expected an amount of US dollars like 12.50: more than 0, less than a billion, with 6 decimals at most",
    ),
]
"""US dollars, more than nothing."""


def usd(amount: Decimal) -> str:
    """An amount to the millionth of a dollar, with two decimals at least: `0.00`, `12.50`, `0.000067`."""
    whole, _, fraction = f"{amount:.6f}".partition(".")
    return f"{whole}.{fraction[:2]}{fraction[2:].rstrip('0')}"
