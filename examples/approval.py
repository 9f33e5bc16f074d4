"""An agent that asks a person before a risky step, and the terminal that answers.

Start the daemon, then run this file; it starts the agent, gives it a task, shows what
it asks, and sends your answer:

    genagentd start
    python examples/approval.py

Any other client may answer instead: leave the agent there, attach a terminal to it in
one window, and give it work in another.

    python examples/approval.py --only-start
    genagent attach deployer
    genagent ask deployer "deploy build 9f2c to production"
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from genagent_protocol.plain import FrozenDict
from genagentd import (
    Agent,
    AsyncClient,
    FunctionFailed,
    GenAgentError,
    NoReply,
    Refused,
    RequestRef,
    Response,
    Run,
    Skip,
    Started,
    TurnFailed,
    function,
)
from genagentd.rpc import Catalog, Function

#: The catalog of `genagent attach`; what is served here is a part of it.
TERMINAL = "urn:genagentd:terminal"
HERE = Path(__file__).resolve().parent
TASK = "deploy build 9f2c to production"


@dataclass
class Log:
    """What was asked, and what came of it."""

    verdicts: list[str] = field(default_factory=list)


class Deployer(Agent[Log]):
    """Does nothing risky without a yes: no client, no answer and no time left all mean no."""

    def init_agent(self, options: FrozenDict) -> Started[Log]:
        return Started(options, Log())

    async def pre_turn(self, prompt: str, state: Log) -> Run[Log] | Skip[Log]:
        verdict = await self._verdict(prompt) if prompt.startswith("deploy") else "harmless"
        state.verdicts.append(f"{verdict}: {prompt}")
        return Run(prompt, state) if verdict in ("harmless", "approved") else Skip(state)

    async def _verdict(self, step: str) -> str:
        question = {"question": "May I go on?", "detail": step}
        try:
            yes = await self.context.call("confirm", question, catalog=TERMINAL, timeout_ms=600_000)
        except FunctionFailed as failed:
            return f"not approved ({failed.code})"
        return "approved" if yes is True else "refused"

    def handle_response(self, _ref: RequestRef, _response: Response, state: Log) -> NoReply[Log]:
        return NoReply(state)

    @function
    def verdicts(self, _arguments: dict[str, Any], state: Log) -> object:
        """What a client may look at without a turn."""
        return state.verdicts


async def confirm(arguments: dict[str, Any]) -> bool:
    """Show the question and return whether the answer was yes."""
    print(arguments["question"], arguments.get("detail", ""))
    print("yes or no? ", end="", flush=True)
    return (await typed()).strip().lower() in ("y", "yes")


async def typed() -> str:
    """Return the line that is typed next.

    The thread that waits for it is a daemon: if the agent ends before somebody types,
    nothing keeps this program from ending, too.

    Raises:
        FunctionFailed: nobody can type anything, or will any more.
    """
    line: Future[bytes] = Future()
    line.set_running_or_notify_cancel()  # From now on a Ctrl-C leaves it to the thread.
    threading.Thread(target=lambda: line.set_result(read()), daemon=True).start()
    said = await asyncio.wrap_future(line)
    if not said:
        raise FunctionFailed("NO_ANSWER", "nobody is at the terminal")
    return said.decode(errors="replace")


def read() -> bytes:
    """Return what comes from standard input next, or nothing if that cannot be read."""
    if sys.stdin is None:  # It was closed, and something else may have its number by now.
        return b""
    try:
        # Not `input`, which would hold the lock of standard input when the program ends.
        return os.read(sys.stdin.fileno(), 1_000)
    except OSError:
        return b""


async def main(*, only_start: bool) -> None:
    catalog = Catalog(
        catalog_id=TERMINAL, functions=(Function.made("confirm", allowed_callers="agentOnly"),)
    )
    async with AsyncClient() as client:
        await client.start_agent(Deployer, name="deployer", backend="echo", cwd=HERE)
        if only_start:
            return
        try:
            await deployed(client, catalog)
        finally:
            # Also after a Ctrl-C at the question: this program started it.
            with contextlib.suppress(Refused):  # It may have died, which was told.
                await client.stop("deployer")


async def deployed(client: AsyncClient, catalog: Catalog) -> None:
    session = await client.attach("deployer", catalogs=[catalog], functions={"confirm": confirm})
    async with session:
        try:
            print((await client.ask("deployer", TASK)).text)
        except TurnFailed as failed:
            print(failed)
        print(await session.call("verdicts"))


if __name__ == "__main__":
    try:
        asyncio.run(main(only_start="--only-start" in sys.argv[1:]))
    except GenAgentError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
