"""What may be said between a client, the daemon and an agent, and when: pure values only."""
