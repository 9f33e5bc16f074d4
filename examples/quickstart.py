"""The quick start: an agent is one class, and a client talks to it by name.

Start the daemon, then run this file, with the name of a backend if you have one:

    genagentd start
    python examples/quickstart.py            # answers by the echo backend
    python examples/quickstart.py claude     # answers by the claude program
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from genagent_protocol.plain import FrozenDict, Plain
from genagentd import Agent, Client, GenAgentError, NoReply, RequestRef, Response, Started
from genagentd.messages import Completion, PollCompleted


@dataclass
class State:
    """What the agent remembers between turns."""

    path: str
    responses: list[str] = field(default_factory=list)
    events: list[Plain] = field(default_factory=list)


class Coder(Agent[State]):
    """Keeps every response; the framework does the rest."""

    def init_agent(self, options: FrozenDict) -> Started[State]:
        path = str(options["path"])
        # The rest is the backend's: an option that is not handed on reaches nobody.
        others = {name: value for name, value in options.items() if name != "path"}
        return Started(others, State(path=path))

    def handle_response(self, _ref: RequestRef, response: Response, state: State) -> NoReply[State]:
        state.responses.append(response.text)
        return NoReply(state)

    def handle_event(self, event: Plain, state: State) -> NoReply[State]:
        state.events.append(event)
        return NoReply(state)

    def show_state(self, state: State) -> object:
        return {"path": state.path, "responses": len(state.responses), "events": state.events}


def main(backend: str) -> None:
    here = Path(__file__).resolve().parent
    with Client() as client:
        client.start_agent(
            Coder, name="my-coder", backend=backend, options={"path": str(here)}, cwd=here
        )
        try:
            talk(client)
        finally:
            client.stop("my-coder")  # this program started it


def talk(client: Client) -> None:
    print(client.ask("my-coder", "What does quickstart.py do?").text)  # waits for the turn

    ref = client.tell_with_completion("my-coder", "Add tests for it")  # does not
    client.notify("my-coder", {"ci_failed": "test_auth"})
    for message in client:
        if isinstance(message, Completion) and message.ref == ref:
            break
    known = client.poll("my-coder", ref)
    print(known.response.text if isinstance(known, PollCompleted) else known)
    print(client.status("my-coder").agent_state)


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "echo")
    except GenAgentError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
