#!/usr/bin/env bash
# msgspec's decoder refuses documents that its own JSON Schema of the same type admits, and takes some that the schema refuses.
#
# Expected (json.schema of msgspec 0.22, which makes the JSON Schema of a type, and JSON Schema 2020-12, where 1.0 is an
# integer): what json.schema(T) admits json.decode(…, type=T) takes, and the other way round.
# Guessed before the run: 1.0 and 1e2 are taken as whole numbers, and sets, numbers and keys are judged alike.
# Seen (msgspec 0.22.0, jsonschema 4.26.0): int: the schema admits 1.0 and 1e2, the decoder refuses both, unless strict=False.
# set[int]: the schema wants uniqueItems, the decoder takes [1,1]. Decimal: the schema wants a text, the decoder takes 1.5.
# dict[int, str]: the schema admits the key "x", the decoder refuses it. float, a multiple of 0.1: jsonschema admits 1.0, the
# decoder refuses it.
# Why it matters: PostgreSQL's jsonb gives back 1.0 as 1.0, and clients send what the schema admits; a contract test made of the
# schema fails on code that is right.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -qq --disable-pip-version-check --target "$work/lib" msgspec==0.22.0 jsonschema==4.26.0
WORK=$work PYTHONPATH=$work/lib python3 - <<'PYTHON'
import json
import sys
from decimal import Decimal
from typing import Annotated

import jsonschema
import msgspec

Tenths = Annotated[float, msgspec.Meta(multiple_of=0.1)]
CASES = [  # type, document, whether the schema admits it, whether the decoder takes it
    (int, "1", True, True),
    (int, "1.0", True, False),
    (int, "1e2", True, False),
    (set[int], "[1,1]", False, True),
    (Decimal, "1.5", False, True),
    (dict[int, str], '{"x":"a"}', True, False),
    (Tenths, "1.0", True, False),
]


def admitted(kind, document):
    return jsonschema.Draft202012Validator(msgspec.json.schema(kind)).is_valid(json.loads(document))


def taken(kind, document):
    try:
        msgspec.json.decode(document, type=kind)
    except msgspec.ValidationError:
        return False
    return True


seen = [(kind, document, admitted(kind, document), taken(kind, document)) for kind, document, *_ in CASES]
print(f"msgspec {msgspec.__version__}: type, document, admitted by the schema, taken by the decoder")
for case in seen:
    print("  ", *case)
as_described = seen == CASES

sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
