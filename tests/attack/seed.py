"""The seed of random attacks: a new one each time, or the one that is given."""

from __future__ import annotations

import os
from random import SystemRandom


def attack_seed() -> int:
    """CMSERVER_TEST_ATTACK_SEED, or a random one. A test prints it with what it found."""
    seed_text = os.environ.get("CMSERVER_TEST_ATTACK_SEED")
    return int(seed_text) if seed_text else SystemRandom().randrange(10**9)
