"""A server with a certificate that only SSL_CERT_FILE vouches for: what its callers say, and that they work with it."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from cmserver.client import connections, server_api
from cmserver.client.server_api import Api, ServerUnreachable, open_http_client
from cmserver.models.providers.http_client import HttpEndpoint
from cmserver.models.providers.model import ProviderError
from tests.client.hook.agent import Agent
from tests.client.hook.recorder import Recorder

WITH_PYTHON = ("cat", "date", "rm", "mkdir", "wc", "head", "python3", "find", "sleep", "cksum", "setsid")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its own authority, for 127.0.0.1 and a day, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cmserver tests")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("certificate") / "certificate.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + signed.public_bytes(Encoding.PEM))
    return file


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, certificate: Path) -> Generator[Recorder]:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    recorder = Recorder(certificate)
    recorder.start()
    yield recorder
    recorder.stop()


@pytest.mark.parametrize("tools", [(), WITH_PYTHON], ids=["curl", "python"])
def test_a_hook_keeps_its_call_and_names_the_variable(agent: Agent, server: Recorder, certificate: Path, tools: tuple[str, ...]):
    if tools:
        agent.tools(*tools)

    told = agent.hook("SessionStart", {"number": 1})

    assert "certificate" in str(told["systemMessage"])
    assert "SSL_CERT_FILE" in str(told["systemMessage"])
    assert (agent.left.waiting, agent.left.trouble, server.sent) == (1, "distrusted", [])
    assert agent.hook("SessionStart", {"number": 2}, env={"SSL_CERT_FILE": str(certificate)})["answer"] is True


async def test_a_command_names_the_variable_and_works_with_it(server: Recorder, certificate: Path, monkeypatch: pytest.MonkeyPatch):
    async with open_http_client(server.url, "cms_x") as http:
        with pytest.raises(ServerUnreachable, match=r"certificate of the server at .* is not trusted here\. Set SSL_CERT_FILE"):
            await Api(http).get("/v1/info")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with open_http_client(server.url, "cms_x") as http:
        assert (await Api(http).get("/v1/info")).raw == b'{"answer":true}'


def test_a_connection_says_that_its_certificate_is_not_trusted(
    server: Recorder, certificate: Path, monkeypatch: pytest.MonkeyPatch
):
    distrusted = connections._check_server(server.url, "cms_x")  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    assert distrusted == connections.DISTRUSTED
    assert connections._check_server(server.url, "cms_x") == "answers"  # pyright: ignore[reportPrivateUsage]


async def test_a_provider_that_is_not_trusted_names_the_variable(server: Recorder):
    endpoint = HttpEndpoint("Gateway", server.url, headers={}, secret=None, timeout_seconds=30)

    with pytest.raises(ProviderError, match=r"Gateway cannot be reached: .* is not trusted here\. Set SSL_CERT_FILE"):
        await endpoint.post("/", {})


def test_a_file_that_holds_no_certificates_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nowhere.pem"))

    with pytest.raises(server_api.BadSetting, match=r"SSL_CERT_FILE names .*nowhere\.pem"):
        server_api.make_trust()
