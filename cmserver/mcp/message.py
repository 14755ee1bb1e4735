"""A message as it came, before the SDK reads it: what that would take much room for, and what it would not take at all."""

from __future__ import annotations

import json
import re

import msgspec

from cmserver.base.errors import TooLarge
from cmserver.base.redaction.clean import decode_json
from cmserver.base.text import storable

_ANSWERS_BYTES = 8_192
"""Of what a client answers, which is asked for nothing but its folders."""
_BESIDES_BYTES = 131_072
"""A client may say much of itself with each message: its icons, for one."""
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class _Params(msgspec.Struct, rename="camel"):
    arguments: msgspec.Raw = msgspec.Raw()
    input_responses: msgspec.Raw = msgspec.Raw()


class _Message(msgspec.Struct):
    params: _Params
    method: str = ""


def bounded(raw: bytes) -> bytes:
    """The message without what the SDK would take hundreds of times the room for: it tries each form that a part may have, and
    keeps what is wrong with each. Only the arguments of a tool, which it hands on as they are, may be as large as a body may be.

    Of what is no message nothing is left, and the SDK says so. Who has very many folders has not said where he works.
    """
    if len(raw) <= _ANSWERS_BYTES:
        return raw
    try:
        raw.decode()  # the SDK's parser takes other encodings, too
        message = msgspec.json.decode(raw, type=_Message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b""
    answers = len(message.params.input_responses)
    if len(raw) - answers - (len(message.params.arguments) if message.method == "tools/call" else 0) > _BESIDES_BYTES:
        raise TooLarge(f"A message has at most {_BESIDES_BYTES:,} bytes besides the `arguments` of a tool.")
    return raw if answers <= _ANSWERS_BYTES else _without_answers(raw)


def _without_answers(raw: bytes) -> bytes:
    message = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    params = msgspec.json.decode(message["params"], type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**message, "params": {**params, "inputResponses": {}}})


def readable(raw: bytes) -> bytes:
    """Without lone surrogates, which the SDK's parser refuses: clients cut texts amid an emoji, and REST takes those, too."""
    if not _ESCAPED_SURROGATE.search(raw):
        return raw
    return storable(json.dumps(decode_json(raw), ensure_ascii=False)).encode()
