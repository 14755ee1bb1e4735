"""The model that words the memory, on the wire: what is chosen, where, what there is to choose, and how its answers are."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cmserver.ops.wire import AnswersOut


class ModelIn(msgspec.Struct, rename="camel", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice. `provider` is a name of the list; `model` is one of its models, without it its own default; `baseUrl` is its
    address, if not the usual one; `key` is its API key, without it the one that is set for that address already; `withoutKey` is
    whether none is sent, and none kept.
    """

    provider: Annotated[str, Meta(min_length=1, max_length=50)]
    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    base_url: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    key: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    without_key: bool = False


class SettingSourceOut(msgspec.Struct, frozen=True, kw_only=True):
    """Where the value of a setting comes from. `setting` is its variable; `source` is the variable or the file that sets it."""

    setting: str
    source: str


class ProviderChoiceOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A provider that can be chosen. `name` is what settings call it; `title` is what people call it; `model` is what it takes
    without a choice, or null where one must be named; `example` is of a model's name; `sentTo` is who is sent the texts, or
    empty for nobody; `bill` is what is paid for instead of tokens, or empty.

    `takesBaseUrl` is whether it may be at another address; `keySetting` is the variable of its key, or null if it needs none;
    `keyEnd` is the end of the key that is set, `set` for a short one, or null for none.
    """

    name: str
    title: str
    model: str | None
    example: str
    sent_to: str
    bill: str
    takes_base_url: bool
    key_setting: str | None
    key_end: str | None


class ModelOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The model in force, several separated by commas. `provider` is as the settings name it; `model` is the model, or null for
    the usual one; `baseUrl` is the address, or null for the usual one.

    `sources` are the settings of models that are set, and where; `providers` are what can be chosen.

    `pending` is whether the settings have changed since the server began; `notReloaded` is why those that were changed last cannot
    be used, or null; `file` is where a choice is kept; `fixedBecause` is why
    none can be made here, in a sentence, or null. `answers` are those of the whole server, or null while
    rules alone word the memory.
    """

    provider: str
    model: str | None
    base_url: str | None
    sources: list[SettingSourceOut]
    pending: bool
    not_reloaded: str | None
    file: str
    fixed_because: str | None
    providers: list[ProviderChoiceOut]
    answers: AnswersOut | None


class ChosenModelOut(msgspec.Struct, frozen=True, kw_only=True):
    """What was kept, and is used within seconds: `provider` is the provider's name; `file` is where it stands."""

    provider: str
    file: str
