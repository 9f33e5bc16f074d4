"""The agent's turn machine as a value: what an agent does next, and nothing else.

    agent, effects = begin(limits, offers)
    for each input, in the order in which the facts became known:
        agent, effects = advance(agent, input)

What a shell owes the machine:

1. It performs the effects of one list from front to back before it feeds the next
   input, and starts nothing that it was not ordered to.
2. After `Invoke` the next input is that callback's return or crash, after
   `StartTurn` that turn's start or failure. Everything else waits, in its order:
   frames from the channel, news from the turn's thread, passed deadlines.
3. It keeps the user's state and the backend's session. A callback gets the
   retained ones; what it returns replaces them if the decision `fits`. A turn
   works on a copy, and `KeepTurn` or `DropTurn` says what becomes of that.
4. It reports every turn it was told to start: it started or could not; and once
   it started, exactly one of ended, crashed, stopped, when its code really has
   ended. Reports of older turns do no harm.
5. Refs of generated prompts are fresh ones, used nowhere before.

`InvalidTransition` means that one of these was broken; the agent is as it was.
"""

from genagent_protocol.turns.rules import advance, begin
from genagent_protocol.turns.state import Advance, Agent, Offers

__all__ = ["Advance", "Agent", "Offers", "advance", "begin"]
