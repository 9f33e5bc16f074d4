"""`python -m genagentd` is the program `genagentd`."""

from genagentd.cli.main import daemon_main

if __name__ == "__main__":
    daemon_main()
