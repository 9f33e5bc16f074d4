"""The daemon: guardian, switchboard, supervision of agent processes."""
