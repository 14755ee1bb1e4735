"""Words observations and summaries by rules, without a model: readings of events in, drafts out."""
