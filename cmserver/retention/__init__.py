"""Deletes what is kept only for a time: expired and superseded observations, payloads of events, logs and receipts."""
