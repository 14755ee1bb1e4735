"""Traces by OpenTelemetry. Unless its standard variables say where to send them, nothing of it is loaded, and nothing is traced."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from cmserver.base.logs import get_logger

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from cmserver.base.spans import Attributes, SpanFactory

log = get_logger(__name__)

_FLUSH_SECONDS = 2.0
"""How long the end of a process waits until its last spans are sent: a collector that is away must not hold it up."""

_factory: SpanFactory | None = None


def is_exported(signal: Literal["traces", "metrics"]) -> bool:
    """Whether the environment says where to send this signal, and the packages for it are installed."""
    name = signal.upper()
    endpoint = os.environ.get(f"OTEL_EXPORTER_OTLP_{name}_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not endpoint or is_disabled or os.environ.get(f"OTEL_{name}_EXPORTER", "otlp").strip() != "otlp":
        return False
    if importlib.util.find_spec("opentelemetry.sdk") and importlib.util.find_spec("opentelemetry.exporter"):
        return True
    log.warning(
        "export.not_installed",
        signal=signal,
        hint="OpenTelemetry's variables are set, but its packages are missing. Install cmserver[otel], or unset them.",
    )
    return False


@contextmanager
def exporting_traces() -> Generator[None]:
    """Send the traces of this process during the block, if the environment says where to."""
    global _factory  # noqa: PLW0603 - one for the process, as its metrics are
    if not is_exported("traces"):
        yield
        return
    from cmserver.base.spans import SpanFactory  # noqa: PLC0415 - needs the extra

    factory = _factory = SpanFactory()
    try:
        yield
    finally:
        _factory = None
        flushing = threading.Thread(target=factory.shut_down, daemon=True)
        flushing.start()
        flushing.join(_FLUSH_SECONDS)


def begin_request_trace(request_id: str, headers: Sequence[tuple[bytes, bytes]]) -> Span | None:
    """Begin the span of a request; None when nothing is traced."""
    if _factory is None:
        return None
    traceparent = next((value.decode("latin-1") for name, value in headers if name == b"traceparent"), None)
    return _factory.begin_request(request_id, traceparent)


def end_request_trace(span: Span, method: str, path: str, status: int) -> None:
    """End the span of a request. `path` is the route's: the request's own may name what is private."""
    if _factory is not None:
        _factory.end_request(span, method, path, status)


@contextmanager
def trace_work(
    name: str, attributes: Attributes | None = None, *, requests: Sequence[str] = (), is_call: bool = False
) -> Generator[Span | None]:
    """A span during the block; None when nothing is traced. `is_call`: of another service.

    Without `requests` it belongs to the current span; else it goes on with the trace of the first, and is linked to the others.
    """
    if _factory is None:
        yield None
        return
    with _factory.span(name, attributes, requests, is_call=is_call) as span:
        yield span
