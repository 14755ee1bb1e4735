"""The audit log: who did what, in ids and names, never in texts."""

from cmserver.access.audit.record import record, request_id

__all__ = ["record", "request_id"]
