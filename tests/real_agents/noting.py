"""A door in front of a server that notes what comes through it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import httpx

from tests.models.providers.fake.server import Asked, FakeProvider, Reply, fake_in_a_thread

_OF_THE_CONNECTION = {"connection", "content-length", "date", "host", "server", "transfer-encoding"}


def _as_it_is(_asked: Asked, answer: bytes) -> bytes:
    return answer


@contextmanager
def noting(url: str, turned: Callable[[Asked, bytes], bytes] = _as_it_is) -> Generator[FakeProvider]:
    """The door to the server at `url`: what was asked there is in its `asked`. `turned` makes another answer of the server's."""

    async def pass_on(asked: Asked) -> Reply:
        async with httpx.AsyncClient(base_url=url, trust_env=False) as behind:
            answer = await behind.request(asked.method, asked.path, headers=_kept(asked.headers), content=asked.body)
        return Reply(status=answer.status_code, headers=_kept(answer.headers), body=turned(asked, answer.content))

    with fake_in_a_thread(pass_on) as door:
        yield door


def _kept(headers: httpx.Headers | dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_THE_CONNECTION}
