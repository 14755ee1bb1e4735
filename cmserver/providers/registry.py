"""The providers by name, as in CMSERVER_PROVIDER; `package.module:factory` names one of the operator's own."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import cast

from cmserver.base.errors import Invalid
from cmserver.providers.model import Provider
from cmserver.providers.offline import Offline

_PROVIDERS: dict[str, Callable[[str | None, str | None], Provider]] = {
    "offline": lambda _model, _base_url: Offline(),
}


def load(name: str, *, model: str | None, base_url: str | None) -> Provider:
    """The provider of that name, ready to be asked. A name that is none raises Invalid, saying which there are."""
    if name in _PROVIDERS:
        return _PROVIDERS[name](model, base_url)
    if ":" in name:
        return _of_the_operator(name)
    near = get_close_matches(name, _PROVIDERS, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    raise Invalid(
        f"There is no provider {name!r}.{guess} Available: {', '.join(sorted(_PROVIDERS))}, "
        "or one of your own as package.module:factory."
    )


def _of_the_operator(name: str) -> Provider:
    module, _, attribute = name.partition(":")
    try:
        factory = cast("object", getattr(import_module(module), attribute))
    except (ImportError, AttributeError, ValueError) as error:
        raise Invalid(f"The provider {name!r} cannot be loaded: {error}.") from error
    made: object = factory() if callable(factory) else None
    if not (callable(getattr(made, "complete", None)) and isinstance(getattr(made, "name", None), str)):
        raise Invalid(f"The provider {name!r} is no provider: {attribute}() must return an object with `name` and `complete`.")
    return cast("Provider", made)
