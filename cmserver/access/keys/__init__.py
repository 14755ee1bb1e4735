"""API keys. `authenticate` decides who may use one."""
