"""Decodes JSON that others send: any JSON text, also with characters that cannot be stored; refusals are sentences."""

from __future__ import annotations

import json
import math

import msgspec

from cmserver.base.errors import Invalid

MAX_DEPTH = 64
"""Levels of objects and arrays."""

_BOM = b"\xef\xbb\xbf"


def decode_json(body: bytes) -> object:
    """Any JSON text. Bytes that are no UTF-8 and escaped lone surrogates come out as lone surrogates, for
    `redaction.clean`.

    Invalid says where the text is no JSON, or what it has that cannot be stored (NaN, numbers beyond all bounds).
    """
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    text = body.removeprefix(_BOM).decode("utf-8", "surrogateescape")
    try:
        return json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise Invalid("The body is empty. Send a JSON value.") from None
        raise Invalid(f"The body is not JSON: {error.msg} (line {error.lineno}, column {error.colno}).") from None
    except ValueError:
        raise Invalid("The body has a number with too many digits. Send it as a text.") from None


def _too_deep() -> Invalid:
    return Invalid(f"The body is nested too deeply. At most {MAX_DEPTH} levels of objects and arrays are accepted.")


def _refuse_number(name: str) -> object:
    raise Invalid(f"The body has the number {name}, which JSON does not know. Send null or a text.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Invalid(f"The body has the number {text[:40]}, which is too large. Send it as a text.")
    return number
