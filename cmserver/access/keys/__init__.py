"""API keys. `authenticate` decides who may use one."""

from cmserver.access.keys.manage import make, min_limit, mint, new_key_text, parse

__all__ = ["make", "min_limit", "mint", "new_key_text", "parse"]
