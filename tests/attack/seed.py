"""The seed of random attacks: the same in each run, or the one that is given."""

from __future__ import annotations

import os
from random import SystemRandom


def attack_seed() -> int:
    """CMSERVER_TEST_ATTACK_SEED, else 1; a random one with CMSERVER_TEST_EXPLORE. A test prints it with what it found."""
    seed_text = os.environ.get("CMSERVER_TEST_ATTACK_SEED")
    if seed_text:
        return int(seed_text)
    return SystemRandom().randrange(10**9) if os.environ.get("CMSERVER_TEST_EXPLORE") else 1
