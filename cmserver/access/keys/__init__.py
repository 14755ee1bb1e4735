"""API keys: `cms_<key id>_<secret>`. Minted once, stored as a hash; who may come in with one is said by `authenticate`."""

from cmserver.access.keys.grant import least
from cmserver.access.keys.mint import make, mint, new_key_text, parse

__all__ = ["least", "make", "mint", "new_key_text", "parse"]
