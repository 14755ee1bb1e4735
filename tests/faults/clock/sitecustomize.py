"""For processes under libfaketime, whose answer to CPython's way to sleep is EINVAL: they sleep in another way."""

import select
import time


def _sleep(seconds: float) -> None:
    """As time.sleep."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        select.select([], [], [], left)


time.sleep = _sleep
