"""Clients: the two shells over one conversation with the daemon."""
