"""Supervisor: a coordinator starts workers for the parts of a task and joins their results.

    tell ──▶ coordinator ──starts, {"part": …}──▶ worker 1..n
                  ▲ {"result": …} / {"failed": …} / Down / deadline
                  └── all parts settled ──▶ one synthesis ──▶ halt

Every report carries the id of its run; what is late, double or from an earlier run
changes nothing. A dead worker and a missed deadline are failed parts, and what did
succeed is still put together. The workers end with the run because whoever ran it
stops them; a halted worker is alive.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from examples.patterns.company import HOME, Voice, Watch, cast, of_voice, shown, watching
from examples.patterns.stage import stage
from genagent_protocol.plain import FrozenDict, Plain
from genagentd import (
    Agent,
    Client,
    Down,
    GenAgentError,
    Halt,
    NoReply,
    Prompt,
    RequestRef,
    Response,
    Run,
    Started,
)
from genagentd.messages import Failure
from genagentd.testing import breaks, says, scripted

#: More parts than this are not worked on.
MAX_PARTS = 8


@dataclass(frozen=True)
class Part:
    """One worker's share: its task, the monitor of its worker, and how it ended."""

    task: str
    monitor: int | None = None
    result: str | None = None
    failure: str | None = None

    @property
    def settled(self) -> bool:
        """Whether it has ended one way or the other."""
        return self.result is not None or self.failure is not None


@dataclass(frozen=True)
class Job:
    """One run of the coordinator."""

    run: str
    deadline_ms: int
    crew: FrozenDict
    phase: Literal["planning", "working", "writing", "done", "failed"] = "planning"
    parts: tuple[Part, ...] = ()
    #: The prompt of the synthesis; a turn is the synthesis if it runs exactly this.
    synthesis: str = ""
    turn: Literal["plan", "synthesis", "other"] = "other"
    report: str = ""
    failure: str = ""

    def settle(self, number: int, *, result: str | None = None, failure: str | None = None) -> Job:
        """Return the job with that part settled, unless it is already."""
        if self.phase != "working" or self.parts[number].settled:
            return self
        part = replace(self.parts[number], result=result, failure=failure)
        return replace(self, parts=(*self.parts[:number], part, *self.parts[number + 1 :]))

    def failed(self, why: str) -> Halt[Job]:
        """Return the end without a report."""
        return Halt(replace(self, phase="failed", failure=why, turn="other"))


Decision = NoReply[Job] | Prompt[Job] | Halt[Job]


class Coordinator(Agent[Job]):
    """Plans, starts workers, waits for their reports without waiting, and writes."""

    def init_agent(self, options: FrozenDict) -> Started[Job]:
        deadline_ms, crew = options["deadline_ms"], options["crew"]
        assert isinstance(deadline_ms, int)
        assert isinstance(crew, FrozenDict)
        return Started(of_voice(options), Job(os.urandom(4).hex(), deadline_ms, crew))

    def pre_turn(self, prompt: str, job: Job) -> Run[Job]:
        if job.phase == "planning":
            return Run(prompt, replace(job, turn="plan"))
        mine = job.phase == "writing" and prompt == job.synthesis
        return Run(prompt, replace(job, turn="synthesis" if mine else "other"))

    async def handle_response(self, _ref: RequestRef, response: Response, job: Job) -> Decision:
        match job.turn:
            case "plan":
                return await self._begin(response.text, job)
            case "synthesis":
                return Halt(replace(job, phase="done", report=response.text, turn="other"))
            case "other":
                return Halt(job) if job.phase in ("done", "failed") else NoReply(job)

    async def _begin(self, plan: str, job: Job) -> Decision:
        tasks = [line.strip("-• ") for line in plan.splitlines() if line.strip("-• ")][:MAX_PARTS]
        parts: list[Part] = []
        for number, task in enumerate(tasks):
            try:
                parts.append(Part(task, await self._start_worker(number, job)))
            except GenAgentError as error:
                for earlier in range(number):
                    await self.context.peers.stop(self._worker(job, earlier))
                return job.failed(f"worker {number + 1} could not be started: {error}")
        for number, task in enumerate(tasks):
            self.context.peers.notify(self._worker(job, number), task)
        job = replace(job, phase="working", parts=tuple(parts), turn="other")
        # A callback never sleeps: the deadline is a notification to ourselves.
        asyncio.get_running_loop().call_later(
            job.deadline_ms / 1000,
            self.context.peers.notify,
            self.context.handle,
            {"run": job.run, "deadline": True},
        )
        return self._settled(job)

    def _worker(self, job: Job, number: int) -> str:
        return f"{self.context.name!s}/{job.run}/{number + 1}"

    async def _start_worker(self, number: int, job: Job) -> int:
        voices = job.crew["voices"]
        assert isinstance(voices, tuple)
        options = {
            "backend": voices[number % len(voices)],
            "coordinator": str(self.context.name),
            "run": job.run,
            "number": number,
        }
        handle = await self.context.peers.start_agent(
            Worker,
            name=self._worker(job, number),
            backend=str(job.crew["backend"]),
            options=options,
            cwd=str(HOME),
        )
        return self.context.peers.monitor(handle).number

    def handle_event(self, event: Plain, job: Job) -> Decision:
        match event:
            case {"run": run} if run != job.run:
                return NoReply(job)
            case {"number": int(number), "result": str(text)}:
                return self._settled(job.settle(number, result=text))
            case {"number": int(number), "failed": str(reason)}:
                return self._settled(job.settle(number, failure=reason))
            case {"deadline": True}:
                for number in range(len(job.parts)):
                    job = job.settle(number, failure="missed the deadline")
                return self._settled(job)
        return NoReply(job)

    def handle_info(self, message: object, job: Job) -> Decision:
        if isinstance(message, Down):
            for number, part in enumerate(job.parts):
                if part.monitor == message.monitor.number:
                    return self._settled(job.settle(number, failure=f"gone ({message.reason})"))
        return NoReply(job)

    def _settled(self, job: Job) -> Decision:
        """Return what follows: nothing yet, the synthesis, or the end."""
        if job.phase != "working" or not all(part.settled for part in job.parts):
            return NoReply(job)
        results = [f"- {part.task}: {part.result}" for part in job.parts if part.failure is None]
        if not results:
            return job.failed("no part succeeded")
        synthesis = f"Put these together in one sentence ({job.run}):\n" + "\n".join(results)
        return Prompt(synthesis, replace(job, phase="writing", synthesis=synthesis))

    def handle_error(self, _ref: RequestRef, reason: Failure, job: Job) -> Decision:
        if job.turn in ("plan", "synthesis"):
            return job.failed(str(reason))
        # Nobody else generates prompts here: a refused one is the synthesis.
        if job.phase == "writing" and reason.code in ("overloaded", "draining"):
            return job.failed(f"the synthesis was refused: {reason}")
        return NoReply(job)

    def show_state(self, job: Job) -> FrozenDict:
        parts = tuple(
            FrozenDict(task=part.task, result=part.result, failure=part.failure)
            for part in job.parts
        )
        return FrozenDict(
            run=job.run, phase=job.phase, parts=parts, report=job.report, failure=job.failure
        )


@dataclass(frozen=True)
class Share:
    """What a worker knows: to whom it reports, and as what."""

    coordinator: str
    run: str
    number: int


class Worker(Agent[Share]):
    """Does one part, reports, and halts."""

    def init_agent(self, options: FrozenDict) -> Started[Share]:
        number = options["number"]
        assert isinstance(number, int)
        share = Share(str(options["coordinator"]), str(options["run"]), number)
        return Started(of_voice(options), share)

    def handle_event(self, event: Plain, share: Share) -> Prompt[Share]:
        return Prompt(str(event), share)

    def handle_response(self, _ref: RequestRef, response: Response, share: Share) -> Halt[Share]:
        return self._report(share, result=response.text)

    def handle_error(self, _ref: RequestRef, reason: Failure, share: Share) -> Halt[Share]:
        return self._report(share, failed=str(reason))

    def _report(self, share: Share, **what: str) -> Halt[Share]:
        report = {"run": share.run, "number": share.number, **what}
        self.context.peers.notify(share.coordinator, report)
        return Halt(share)


@contextmanager
def running(
    client: Client,
    name: str,
    task: str,
    voice: Voice,
    workers: Voice,
    deadline_ms: int = 600_000,
    limits: Mapping[str, object] | None = None,
) -> Iterator[None]:
    """Run a coordinator on *task*; leaving stops it and every worker that carries its name.

    Options of *workers* may be a list under `voices`: one for each worker, in turn.
    """
    voices = workers.options.get("voices", [workers.options])
    crew = {"backend": workers.backend, "voices": voices}
    spec = cast(
        Coordinator,
        name,
        voice,
        limits=limits,
        may_start=True,
        deadline_ms=deadline_ms,
        crew=crew,
    )
    client.start_agent(spec)
    try:
        client.tell(name, f"Split this into two or three parts, one per line: {task}")
        yield
    finally:
        clear(client, name)


def company(client: Client, name: str) -> list[str]:
    """Return the names of the coordinator and its workers, as far as they are there."""
    everybody = [row.name for row in client.list() if isinstance(row.name, str)]
    return [one for one in everybody if one == name or one.startswith(f"{name}/")]


def clear(client: Client, name: str) -> None:
    """Stop the coordinator first, so that it starts nobody any more, and then its workers."""
    if name in company(client, name):
        client.stop(name)
    for worker in company(client, name):
        client.stop(worker)


def finished(
    client: Client, watch: Watch, name: str, within_ms: int = 600_000
) -> Mapping[str, Any]:
    """Return what the run came to, once it is done or has failed; raises as `Watch.until`."""

    def over() -> Mapping[str, Any] | None:
        job = shown(client, name)
        return job if job["phase"] in ("done", "failed") else None

    return watch.until(over, f"{name} is done", within_ms)


def main() -> None:
    """Three workers, one of which fails."""
    with stage("Supervisor: a coordinator with workers.") as here, watching(here.client) as watch:
        plan = says("read the log\nread the metrics\nask the neighbours")
        voice = here.voice(plan, says("A disk is full on one machine; the neighbours are unheard."))
        if here.backend == "scripted":
            answers = [says("a disk filled up"), says("one machine is at 100 %"), breaks("busy")]
            workers = Voice("scripted", {"voices": [scripted(answer) for answer in answers]})
        else:
            workers = voice
        task = "why did the nightly job fail?"
        with running(here.client, "lead", task, voice, workers):
            job = finished(here.client, watch, "lead")
            for part in job["parts"]:
                said = part["result"] or f"failed: {part['failure']}"
                here.say(f"  {part['task']} -> {said}")
            if job["phase"] == "failed":
                here.fail(job["failure"])
            here.say(f"done: {job['report']}")
            here.say(f"its agents before clearing: {len(company(here.client, 'lead'))}")
        here.say(f"its agents after clearing: {len(company(here.client, 'lead'))}")


if __name__ == "__main__":
    main()
