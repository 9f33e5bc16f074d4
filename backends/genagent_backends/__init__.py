"""Backends: the contract that turns one prompt into a stream of events, and its implementations."""
