"""A supervisor daemon for long-running LLM agents: one OS process per agent."""
