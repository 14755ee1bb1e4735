"""People answer which rules of models and of agents' tools count, over HTTP and on the command line."""
