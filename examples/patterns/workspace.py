"""Workspace: an agent with a git repository of its own, and all four hooks around it.

    pre_run ──▶ ( pre_turn ──▶ turn ──▶ handle_response ──▶ post_turn ) × n ──▶ halt ──▶ post_run
    creates      adds what      the      decides              writes and                  writes the
    it           is there       model    what follows         commits                     summary

`post_turn` cannot change what follows: a failed commit is kept in the state, and the
next gate halts. `post_run` runs on a halt and on nothing else: no summary after a crash.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from examples.patterns.company import Voice, cast, of_voice, shown, stopping, watching
from examples.patterns.stage import stage
from genagent_protocol.plain import FrozenDict
from genagentd import (
    Agent,
    AgentHandle,
    Client,
    Failed,
    Halt,
    Ok,
    Prompt,
    RequestRef,
    Response,
    Run,
    Started,
)
from genagentd.messages import Completed, Failure, Outcome
from genagentd.testing import says

#: What a run may be called: it becomes a path.
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
IDENTITY = ("-c", "user.name=workspace", "-c", "user.email=workspace@localhost")


class GitFailed(Exception):
    """A git command ended badly; its last words are the message."""


async def git(directory: Path, *arguments: str) -> str:
    """Run git there and return what it printed.

    Raises:
        GitFailed: it ended badly, or there is no git.
    """
    command = ("git", *IDENTITY, "-C", str(directory), *arguments)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise GitFailed(f"git cannot be run: {error.strerror}") from None
    printed, _ = await process.communicate()
    text = printed.decode(errors="replace").strip()
    if process.returncode != 0:
        raise GitFailed(f"git {arguments[0]}: {text}")
    return text


@dataclass(frozen=True)
class Work:
    """One run: where it works, how many turns it has, and what it has written."""

    root: Path
    run: str
    turns: int
    written: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    failure: str = ""

    @property
    def directory(self) -> Path:
        """The repository of this run."""
        return self.root / self.run


class Writer(Agent[Work]):
    """Writes one note a turn, each knowing the ones before it."""

    def init_agent(self, options: FrozenDict) -> Started[Work] | Failed:
        run, turns = options["run"], options["turns"]
        assert isinstance(turns, int)
        if not isinstance(run, str) or RUN_ID.fullmatch(run) is None:
            return Failed("bad_run_id")
        return Started(of_voice(options), Work(Path(str(options["root"])), run, turns))

    async def pre_run(self, work: Work) -> Ok[Work] | Failed:
        try:
            work.directory.mkdir()
        except OSError as error:
            # Not ours: an earlier run of that id stays as it is.
            return Failed(f"no new directory for {work.run}: {error.strerror}")
        try:
            await git(work.directory, "init", "--quiet")
            await git(work.directory, "commit", "--quiet", "--allow-empty", "-m", "Begin")
        except GitFailed as error:
            shutil.rmtree(work.directory, ignore_errors=True)
            return Failed(str(error))
        return Ok(work)

    def pre_turn(self, prompt: str, work: Work) -> Run[Work] | Halt[Work]:
        if work.failure:
            return Halt(work)
        earlier = "\n".join(work.written)
        return Run(f"{prompt}\nSo far:\n{earlier}" if earlier else prompt, work)

    def handle_response(
        self, _ref: RequestRef, response: Response, work: Work
    ) -> Prompt[Work] | Halt[Work]:
        work = replace(work, written=(*work.written, response.text))
        if len(work.written) >= work.turns:
            return Halt(work)
        return Prompt("Add one more sentence.", work)

    def handle_error(self, _ref: RequestRef, reason: Failure, work: Work) -> Halt[Work]:
        return Halt(replace(work, failure=work.failure or str(reason)))

    async def post_turn(self, outcome: Outcome, _ref: RequestRef, work: Work) -> Ok[Work]:
        if not isinstance(outcome, Completed):
            return Ok(work)
        number = len(work.written)
        note = work.directory / f"{number:03}.md"
        try:
            note.write_text(outcome.response.text + "\n", encoding="utf-8")
            await git(work.directory, "add", note.name)
            await git(work.directory, "commit", "--quiet", "-m", f"Turn {number}")
            commit = await git(work.directory, "rev-parse", "HEAD")
        except (OSError, GitFailed) as error:
            return Ok(replace(work, failure=str(error)))
        return Ok(replace(work, commits=(*work.commits, commit)))

    def post_run(self, work: Work) -> None:
        if not work.failure:
            summary = f"{len(work.commits)} turns, {len(work.commits)} commits\n"
            (work.directory / "SUMMARY").write_text(summary, encoding="utf-8")

    def show_state(self, work: Work) -> FrozenDict:
        return FrozenDict(written=work.written, commits=work.commits, failure=work.failure)


def begin(
    client: Client, name: str, topic: str, voice: Voice, *, root: Path, run: str, turns: int
) -> AgentHandle:
    """Start a run with a repository of its own below *root*.

    The client's mailbox hears how it goes: a `Down` tells when there is no repository.

    Raises:
        StartFailed: the id of the run is none.
    """
    spec = cast(Writer, name, voice, root=str(root), run=run, turns=turns)
    handle = client.start_agent(spec)
    agent = client.at(handle)
    agent.monitor()
    agent.submit_with_completion(topic)
    return handle


def main() -> None:
    """Three turns, three commits and the first one."""
    with (
        stage("Workspace: four hooks around git.") as here,
        watching(here.client) as watch,
        tempfile.TemporaryDirectory(prefix="workspace") as root,
    ):
        voice = here.voice(
            says("A process is a promise about an end."),
            says("Whoever waits for it must be told."),
            says("Whoever started it must clean up."),
        )
        handle = begin(
            here.client,
            "writer",
            "Write one sentence about processes.",
            voice,
            root=Path(root),
            run="run-1",
            turns=3,
        )
        with stopping(here.client, [handle]):
            watch.until_halted(["writer"])
            state = shown(here.client, "writer")
            log = asyncio.run(git(Path(root) / "run-1", "log", "--format=%s", "--reverse"))
            here.say(f"commits: {', '.join(log.splitlines())}")
            for number, text in enumerate(state["written"], 1):
                here.say(f"  {number:03}.md: {text}")
            if state["failure"]:
                here.fail(state["failure"])
            summary = Path(root) / "run-1" / "SUMMARY"
            here.say(f"summary: {summary.read_text()}")


if __name__ == "__main__":
    main()
