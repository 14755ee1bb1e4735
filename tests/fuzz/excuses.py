"""What schemathesis takes for a failure and is none, with the reason: rules that JSON Schema cannot say."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

import msgspec
import schemathesis
from schemathesis.core.failures import Failure
from schemathesis.core.transport import Response

REJECTED = "RejectedPositiveData"
ACCEPTED = "AcceptedNegativeData"
OTHER_METHOD = "UnsupportedMethodResponse"

VALIDATOR = re.compile(
    r"^(Expected `|Missing field|Unknown field|Invalid |Object |A character that cannot be stored|The body is not JSON)",
    re.IGNORECASE,
)
"""How a refusal begins that comes of a field's type or limits: what it objects to, the document should have told. Any other is a
rule with a sentence of its own: that a cursor is one the server gave, that one of several fields must be there, that a name is
more than spaces, that a key for the whole team must say which project is meant."""
FRACTION = re.compile(r"^Expected `int.*got `float`")
"""15.0 is an integer to JSON Schema only."""


LIKE_A_PROJECT = re.compile(r"/v1/projects/.+/(?:jobs|memory)$")
"""A project's name may have slashes, and so end like that: what these paths do not take is asked of the project of that name."""


@schemathesis.hook  # pyright: ignore[reportUnknownMemberType]
def filter_failure(context: object, failure: Failure, case: object, response: Response) -> bool:
    """Whether it is a failure."""
    del context, case
    kind = type(failure).__name__
    if kind == ACCEPTED and null_in_query(response.request.url or ""):
        return False  # `null` in a query is read as not said: what a client's template makes of a missing value
    if kind == OTHER_METHOD and LIKE_A_PROJECT.match(urlsplit(response.request.url or "").path):
        return response.status_code >= 500
    if kind == REJECTED and response.status_code == 400:
        message = said(response)
        return bool(VALIDATOR.search(message)) and not FRACTION.search(message)
    return True


def null_in_query(url: str) -> bool:
    """Whether a parameter says `null`."""
    return any(value == "null" for _, value in parse_qsl(urlsplit(url).query))


class _Refusal(msgspec.Struct):
    message: str = ""


def said(response: Response) -> str:
    """The message of a refusal; nothing when it is none of ours, which another check tells."""
    try:
        return msgspec.json.decode(response.content, type=_Refusal).message
    except msgspec.DecodeError:
        return ""
