"""A link that is sent to somebody says when only this machine can open it."""

from __future__ import annotations

from cmserver.access.people.links import warn_of_link
from tests.table import try_rows


@try_rows(
    "host, is_here",
    [
        ("127.0.0.1:37777", True),
        ("127.9.9.9", True),
        ("localhost:37777", True),
        ("LOCALHOST", True),
        ("cms.localhost", True),
        ("[::1]:37777", True),
        ("0.0.0.0:37777", True),
        ("192.168.1.7:37777", False),
        ("memory.example.com", False),
        ("localhost.example.com", False),
        ("[2001:db8::1]", False),
    ],
)
def test_a_link_that_only_this_machine_can_open(host: str, is_here: bool):
    warning = warn_of_link(f"http://{host}/ui/join/abc", "cmserver users invite")

    assert (warning is not None) is is_here
    assert warning is None or ("CMSERVER_HOST=0.0.0.0" in warning and "`cmserver users invite --url ADDRESS`" in warning)
