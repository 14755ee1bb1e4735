"""The page on settings in the reference, drawn from the one Struct that holds them."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from cmserver.base.configuration import CONFIG_FILE, CONFIG_NAME, FOREIGN_NAMES
from cmserver.base.contextify import NAMES_BY_SETTING, UNUSED_VARIABLES
from cmserver.base.settings import Field, fields


def settings_page() -> str:
    """docs/reference/settings.md."""
    return _PAGE.format(
        config_file=CONFIG_FILE,
        config_name=CONFIG_NAME,
        rows="\n".join(_row(field) for field in fields()),
        foreign="\n".join(f"| `{name}` | `{field_name}` |" for name, field_name in FOREIGN_NAMES.items()),
        contextify=_contextify_rows(),
    )


_PAGE = """\
# Settings

<!-- Generated from cmserver/base/settings.py. -->

Each setting is an environment variable, or a key of a TOML file; the environment wins. The file is the one that `--config`
or `{config_file}` names, else `{config_name}` in the data folder, where `cmserver connect` and `cmserver run` keep the
[provider](../howto/choose-a-provider.md) that was chosen. The key is the variable's name in lower case without
`CMSERVER_`. An empty value counts as not set. A secret can also come from a file: add `_FILE` to the variable's name and
set it to the file's path.

`cmserver config` prints what is in force and where it comes from. A wrong value stops the start with one sentence and
exit code 2; an unknown name is pointed out, and at one of an earlier version a sentence says what stands in its place,
or [nothing starts](../howto/upgrade.md#settings-that-are-gone).
A worker that stops finishes what it can in two fifths of its lease, in 8 seconds at most, and holds a batch for two and
a half times a provider's time at most, or for five minutes.

| variable | default | values | meaning |
|---|---|---|---|
{rows}

## Variables of other programs

These variables of claude-mem and Voyage count where cmserver's own are not set; the log names each that is used
(`setting.translated`).
`CLAUDE_MEM_MODEL` counts for the providers `anthropic` and `claude-cli` alone, `VOYAGE_API_KEY` for the embedder `voyage`,
and for the vectors of Voyage that are still searched after a change of the embedder.
`CLAUDE_CODE_PATH` is the program of the provider `claude-cli`, `claude` in `PATH` where it is not set.

| variable | setting |
|---|---|
{foreign}

Contextify's names are too general to be taken from a shell. `cmserver config import contextify FILE` reads its env file or its
`config.yaml`, and prints the lines for `{config_name}`. `DATABASE_URL` must lead to an empty database: that of Contextify itself is
refused.

| variable of Contextify | key of its config.yaml | in cmserver |
|---|---|---|
{contextify}
"""


def _contextify_rows() -> str:
    used = [f"| `{variable}` | `{key}` | `{setting}` |" for setting, (variable, key) in NAMES_BY_SETTING.items()]
    unused = [f"| `{name}` | | not used; in its place: {substitute} |" for name, substitute in UNUSED_VARIABLES.items()]
    return "\n".join([*used, *unused])


def _row(field: Field) -> str:
    name = f"`{field.environment}`"
    if field.mask:
        name += f", or `{field.environment}_FILE`"
    return f"| {name} | {_default(field)} | {_values(field)} | {field.description} |"


def _default(field: Field) -> str:
    if field.default_in_words:
        return field.default_in_words
    if isinstance(field.default, float):
        return f"`{field.default:g}`"
    return "not set" if field.default in (None, "") else f"`{field.default}`"


def _values(field: Field) -> str:
    if field.choices:
        return ", ".join(f"`{choice}`" for choice in field.choices)
    if field.type is Path:
        return "an absolute path"
    if field.mask == "url":
        return "a URL"
    return "a text" if str in (field.type, *get_args(field.type)) else field.expected
