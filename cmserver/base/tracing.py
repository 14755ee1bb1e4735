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

factory: SpanFactory | None = None
"""None when nothing is traced."""


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
    global factory  # noqa: PLW0603 - one for the process, as its metrics are
    if not is_exported("traces"):
        yield
        return
    from cmserver.base.spans import SpanFactory  # noqa: PLC0415 - needs the extra

    factory = made = SpanFactory()
    try:
        yield
    finally:
        factory = None
        flushing = threading.Thread(target=made.shut_down, daemon=True)
        flushing.start()
        flushing.join(_FLUSH_SECONDS)


@contextmanager
def trace_work(
    name: str, attributes: Attributes | None = None, *, requests: Sequence[str] = (), is_call: bool = False
) -> Generator[Span | None]:
    """A span during the block; None when nothing is traced. `is_call`: of another service.

    Without `requests` it belongs to the current span; else it goes on with the trace of the first, and is linked to the others.
    """
    if factory is None:
        yield None
        return
    with factory.span(name, attributes, requests, is_call=is_call) as span:
        yield span
