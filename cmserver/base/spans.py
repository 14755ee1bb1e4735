"""Makes OpenTelemetry's spans and sends them. Imported only with the extra `otel`.

The trace of a request has the request's id. Jobs know that id, so their batch continues the trace, in whichever process.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context, attach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cmserver import __version__

Attributes = Mapping[str, str | int | Sequence[int]]
_NOWHERE = Context()


def describe_process() -> Resource:
    """What this process is, for OpenTelemetry; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` come first."""
    own = {
        "service.name": "cmserver",
        "service.version": __version__,
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
    }
    return Resource.create(own).merge(OTELResourceDetector().detect())


class _RequestIds(RandomIdGenerator):
    """Random ids, but for the span of a request."""

    request: SpanContext | None = None

    def generate_trace_id(self) -> int:
        return self.request.trace_id if self.request else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.request.span_id if self.request else super().generate_span_id()


class SpanFactory:
    """Makes the spans of this process, which are sent in the background."""

    def __init__(self) -> None:
        self._ids = _RequestIds()
        self._provider = TracerProvider(resource=describe_process(), id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("cmserver", __version__)

    def begin_request(self, request_id: str, headers: Sequence[tuple[bytes, bytes]]) -> Span:
        """Begin the span of a request, and make it the current one; the trace of the caller is linked."""
        carrier = {name.decode(): value.decode("latin-1") for name, value in headers if name == b"traceparent"}
        caller = trace.get_current_span(TraceContextTextMapPropagator().extract(carrier, _NOWHERE)).get_span_context()
        self._ids.request = self._locate_request(request_id)
        span = self._tracer.start_span("request", _NOWHERE, SpanKind.SERVER, links=[Link(caller)] if caller.is_valid else [])
        self._ids.request = None
        attach(trace.set_span_in_context(span))  # not detached: the server runs each request in a context of its own
        return span

    def end_request(self, span: Span, method: str, path: str, status: int) -> None:
        """End the span of a request. `path` is the route's: the request's own may name what is private."""
        span.update_name(f"{method} {path}")
        span.set_attributes({"http.request.method": method, "http.route": path, "http.response.status_code": status})
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end()

    @contextmanager
    def span(self, name: str, attributes: Attributes | None, requests: Sequence[str], *, is_call: bool) -> Generator[Span]:
        """A span during the block. Of a failure it has the class alone: the message may hold what users have stored."""
        contexts = [self._locate_request(request_id) for request_id in requests]
        with self._tracer.start_as_current_span(
            name,
            trace.set_span_in_context(NonRecordingSpan(contexts[0]), _NOWHERE) if contexts else None,
            SpanKind.CLIENT if is_call else SpanKind.INTERNAL,
            attributes,
            [Link(context) for context in contexts[1:]],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_status(StatusCode.ERROR, type(error).__name__)
                raise

    def shut_down(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def _locate_request(self, request_id: str) -> SpanContext:
        """The place of the span of that request, which perhaps another process has sent."""
        try:
            trace_id = UUID(request_id).int
        except ValueError:  # a client's own
            trace_id = int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=16).digest())
        trace_id = trace_id or 1
        is_sampled = self._provider.sampler.should_sample(_NOWHERE, trace_id, "request").decision.is_sampled()
        return SpanContext(trace_id, trace_id % 2**64 or 1, is_remote=True, trace_flags=TraceFlags(is_sampled))
