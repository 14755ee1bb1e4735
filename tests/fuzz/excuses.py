"""Drops what schemathesis reports although it is right: rules that JSON Schema cannot express, each with its reason."""

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
    r"^(Expected `|At (?:least|most) [0-9]|The number must be|Missing field|Unknown field|Invalid (?![a-z ]+:)|Object"
    r"|A character that cannot be stored|The body is not JSON)",
    re.IGNORECASE,
)
"""How the message of a refusal begins when a field's type or limits are wrong: the document must describe those. Other messages
come from rules that a schema cannot express: a cursor must be one the server made, one of several fields must be present, a name
must not be blank, a key for the whole team must name a project. `Invalid time: …` is one of those."""
FRACTION = re.compile(r"^Expected `int.*got `float`")
"""15.0 is an integer in JSON Schema, but not here."""


LIKE_A_PROJECT = re.compile(r"/v1/projects/.+/(?:jobs|memory|join|separate)$")
"""A project's name may contain slashes and end like this. A method that these paths lack is then a request for that project."""


@schemathesis.hook  # pyright: ignore[reportUnknownMemberType]
def filter_failure(context: object, failure: Failure, case: object, response: Response) -> bool:
    """Return False for a report that is no failure."""
    del context, case
    kind = type(failure).__name__
    if kind == ACCEPTED and has_null_in_query(response.request.url or ""):
        return False  # `null` in a query means absent: clients' templates write it for a missing value
    if kind == OTHER_METHOD and LIKE_A_PROJECT.match(urlsplit(response.request.url or "").path):
        return response.status_code >= 500
    if kind == REJECTED and response.status_code == 400:
        message = refusal_message(response)
        return bool(VALIDATOR.search(message)) and not FRACTION.search(message)
    is_overview = urlsplit(response.request.url or "").path.endswith("/summarize")  # 422: there is nothing to make one of
    return not (kind == REJECTED and response.status_code == 422 and is_overview)


def has_null_in_query(url: str) -> bool:
    """Whether a query parameter is `null`."""
    return any(value == "null" for _, value in parse_qsl(urlsplit(url).query))


class _Refusal(msgspec.Struct):
    message: str = ""


def refusal_message(response: Response) -> str:
    """The message of a refusal, or "" when the body is not ours, which another check reports."""
    try:
        return msgspec.json.decode(response.content, type=_Refusal).message
    except msgspec.DecodeError:
        return ""
