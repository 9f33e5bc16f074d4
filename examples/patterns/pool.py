"""Pool: equal workers, and a dispatcher that hands each task to the next one.

    submit ──▶ Pool ──▶ worker-1   the queue of a worker is its backlog:
                   ──▶ worker-2   `tell` queues, and says so when it is full
                   ──▶ worker-3

A result is found by worker and ref, so that two equal prompts stay two tasks. A
refusal is an answer, too: it is raised, and the turn of that worker is over.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from examples.patterns.company import (
    Voice,
    Watch,
    cast,
    of_voice,
    shown,
    start_all,
    stop_all,
    watching,
)
from examples.patterns.stage import stage
from genagent_protocol.plain import FrozenDict
from genagentd import (
    Agent,
    AgentHandle,
    Client,
    NoReply,
    RequestRef,
    Response,
    Run,
    Started,
)
from genagentd.messages import Failure
from genagentd.testing import breaks, echoes

#: What one worker keeps; the oldest leave first.
MAX_RESULTS = 500


@dataclass(frozen=True)
class Done:
    """What one worker did, by ref: its task and what came of it."""

    current: str = ""
    results: FrozenDict = field(default_factory=FrozenDict)

    def with_result(self, ref: RequestRef, **result: str) -> Done:
        """Return it with the outcome of the task that ran."""
        entries = {**self.results, ref.text: FrozenDict(task=self.current, **result)}
        return replace(self, results=FrozenDict(list(entries.items())[-MAX_RESULTS:]))


class Worker(Agent[Done]):
    """Runs what it is given; a failure is a result, and the next task comes."""

    def init_agent(self, options: FrozenDict) -> Started[Done]:
        return Started(of_voice(options), Done())

    def pre_turn(self, prompt: str, done: Done) -> Run[Done]:
        return Run(prompt, replace(done, current=prompt))

    def handle_response(self, ref: RequestRef, response: Response, done: Done) -> NoReply[Done]:
        return NoReply(done.with_result(ref, text=response.text))

    def handle_error(self, ref: RequestRef, reason: Failure, done: Done) -> NoReply[Done]:
        return NoReply(done.with_result(ref, error=str(reason)))

    def show_state(self, done: Done) -> FrozenDict:
        return done.results


class Pool:
    """A fixed set of workers. Any thread may submit."""

    def __init__(
        self,
        client: Client,
        name: str,
        voices: list[Voice],
        limits: Mapping[str, object] | None = None,
    ) -> None:
        """Start a worker for each voice, or none.

        Raises:
            StartFailed: one could not be started.
        """
        self._client = client
        specs = [
            cast(Worker, f"{name}-{number}", voice, limits=limits)
            for number, voice in enumerate(voices, 1)
        ]
        self.workers: list[AgentHandle] = start_all(client, specs)
        self._turn = itertools.count()
        self._lock = threading.Lock()

    def submit(self, task: str) -> tuple[AgentHandle, RequestRef]:
        """Hand *task* to the next worker; return which one, and the ref of the task.

        Raises:
            Refused: that worker did not take it (`overloaded`, ...). There is no ref, and
                the next task goes to the next worker all the same.
        """
        with self._lock:
            worker = self.workers[next(self._turn) % len(self.workers)]
        return worker, self._client.tell(worker.name, task)

    def quiet(self) -> bool:
        """Whether nothing runs or waits now. This is no barrier: others may be submitting."""
        return all(
            snapshot.phase == "idle"
            and not snapshot.pending_prompts
            and not snapshot.pending_notifications
            and not snapshot.self_chain_pending
            for snapshot in (self._client.runtime_snapshot(w.name) for w in self.workers)
        )

    def wait_quiet(self, watch: Watch, within_ms: int = 600_000) -> None:
        """Return when `quiet`; raises TimeoutError as `Watch.until`."""
        watch.until(self.quiet, "the pool is quiet", within_ms)

    def results(self) -> dict[str, Mapping[str, Any]]:
        """Return what the workers know, by ref: `task` and `text` or `error`."""
        found: dict[str, Mapping[str, Any]] = {}
        for worker in self.workers:
            found |= shown(self._client, str(worker.name))
        return found

    def shrink(self, count: int) -> None:
        """Stop all workers but the first *count*, with what they have queued."""
        with self._lock:
            extra, self.workers = self.workers[count:], self.workers[:count]
        stop_all(self._client, extra)

    def close(self) -> None:
        """Stop every worker."""
        self.shrink(0)


def main() -> None:
    """Seven tasks on three workers, one of which fails once."""
    with stage("Pool: equal workers, round robin.") as here, watching(here.client) as watch:
        steady = here.voice(echoes(), repeat=True)
        shaky = here.voice(echoes(), breaks("lost the thread"), echoes())
        with contextlib.closing(Pool(here.client, "worker", [steady, shaky, steady])) as pool:
            for number in range(1, 8):
                task = f"Reply with the number {number} and nothing else."
                worker, _ = pool.submit(task)
                here.say(f"task {number} goes to {worker.name!s}")
            pool.wait_quiet(watch)
            results = pool.results().values()
            for entry in results:
                here.say(f"  {entry['task']} -> {entry.get('text') or entry.get('error')}")
            if all("error" in entry for entry in results):
                here.fail("no task succeeded")
            pool.shrink(1)
            here.say(f"still here: {', '.join(str(worker.name) for worker in pool.workers)}")


if __name__ == "__main__":
    main()
