"""The agent process: a coordinator around the turn machine, user callbacks, and one turn thread."""
