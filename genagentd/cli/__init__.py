"""The commands genagentd and genagent."""
