"""What is said to the daemon itself, and what it answers.

Requests become facts for the supervision machine, or are read off its table; the
frozen core (ping, status, stop) is answered whatever version the client speaks.
Nothing here starts, stops or judges an agent.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, assert_never

from genagent_protocol import answers, codec, envelopes, limits, requests, schema
from genagent_protocol.errors import RemoteWireError
from genagent_protocol.plain import FrozenDict
from genagent_protocol.reasons import Reason, StartError
from genagent_protocol.refs import BootId, Incarnation
from genagent_protocol.supervision import effects, inputs
from genagent_protocol.supervision.table import Child, child_of, handle_of, whereis
from genagent_protocol.supervision.terms import Terms
from genagentd import deadlines, kernel
from genagentd.config import Config
from genagentd.daemon import brief
from genagentd.daemon.lives import Life, now_ms
from genagentd.daemon.owners import Owners
from genagentd.daemon.report import report, warn
from genagentd.daemon.shell import Caller, Shell
from genagentd.daemon.switchboard import Client, Port, Sender, Switchboard
from genagentd.paths import Places
from genagentd.version import __version__

#: How long a ping may stay unanswered before its agent is called unresponsive.
UNRESPONSIVE_MS = 3_000

_REQUEST = schema.tag_of(envelopes.Request)


class Daemon:
    """One daemon, from its bind to the end of its last agent."""

    def __init__(self, boot: BootId, places: Places, config: Config) -> None:
        self._boot = boot
        self._places = places
        self._config = config
        self._began_ms = now_ms()
        self._gone: set[int] = set()
        self._pings = deadlines.Deadlines(self._not_answered)
        self._owners = Owners(self._lost)
        self._board = Switchboard(
            boot,
            places.socket,
            on_control=self._control,
            on_client=self._owners.watch,
            on_client_gone=self._client_gone,
            on_abuse=self._abused,
        )
        self.shell = Shell(boot, places, config, self._board)
        self._feed = self.shell.feed

    def _control(self, sender: Sender, body: bytes) -> None:
        try:
            said = codec.decode(envelopes.ToDaemon, body)
        except codec.UnknownMessage as unknown:
            self._board.bad_frames += 1
            self._board.say(sender, envelopes.UnknownType(tag=unknown.tag, call=unknown.call))
            return
        except codec.MalformedMessage as malformed:
            self._board.bad_frames += 1
            self._refuse(sender, malformed)
            return
        except RemoteWireError:
            self._board.bad_frames += 1
            return
        for envelope in said:
            if isinstance(sender, Port) and self._board.port(sender.incarnation) is None:
                return  # It was cut off over what stands before; nothing after that is believed.
            self._hear(sender, envelope, body)

    def _refuse(self, sender: Sender, malformed: codec.MalformedMessage) -> None:
        # An answer to anything but a request would seem to be one to a call of that number.
        if malformed.tag == _REQUEST and malformed.call is not None:
            answer = answers.Refused(Reason("malformed_request"))
            self._reply(Caller(sender, malformed.call), answer)

    def _hear(self, sender: Sender, said: Any, body: bytes) -> None:
        match said:
            case envelopes.Ping():
                self._board.say(sender, envelopes.Pong.to(said))
            case envelopes.CoreStatus():
                self._board.say(sender, self._core_state(said.call))
            case envelopes.Credit():
                self._board.credited(sender, said)
            case envelopes.Request():
                self._request(sender, said)
            case _ if isinstance(sender, Client):
                self._hear_client(sender, said)
            case _:
                self._hear_agent(sender, said, body)

    def _hear_client(self, client: Client, said: Any) -> None:
        match said:
            case envelopes.Hello():
                self._welcome(client, said)
            case envelopes.CoreStop():
                self._board.say(client, envelopes.Stopping(call=said.call))
                self.shut_down(force=said.force)
            case _:
                self._board.bad_frames += 1

    def _hear_agent(self, port: Port, said: Any, body: bytes) -> None:
        incarnation = port.incarnation
        match said:
            case envelopes.Ready():
                self._feed(inputs.AgentReady(incarnation))
            case envelopes.StartRefused():
                self._feed(inputs.AgentRefused(incarnation, said.error))
            case envelopes.Leaving():
                self._feed(inputs.LeavingSaid(incarnation, said.unresolved))
            case envelopes.Exiting():
                self._feed(inputs.ExitSaid(incarnation, said.reason, said.unresolved))
            case envelopes.Pong():
                self._answered(incarnation)
            case envelopes.Telemetry():
                self._take_record(port, body, said.records)
            case envelopes.UnknownType():
                report("agent.unknown_type", agent=port.name, type=said.tag)
            case _:
                self._abused(port, f"an agent does not say {type(said).__name__} to the daemon")

    def _welcome(self, client: Client, hello: envelopes.Hello) -> None:
        shared = min(hello.max_version, envelopes.MAX_VERSION)
        if shared < max(hello.min_version, envelopes.MIN_VERSION):
            refused = envelopes.VersionRefused(
                min_version=envelopes.MIN_VERSION,
                max_version=envelopes.MAX_VERSION,
                software=__version__,
            )
            self._board.say(client, refused)
            return
        client.welcome = True
        self._board.say(
            client,
            envelopes.Welcome(
                version=shared,
                boot=self._boot,
                mailbox=client.address,
                place=self._places.place,
                software=__version__,
            ),
        )
        self.shell.on_change()

    def _core_state(self, call: int) -> envelopes.CoreState:
        return envelopes.CoreState(
            call=call,
            pid=os.getpid(),
            boot=self._boot,
            software=__version__,
            ready=self.shell.table.shutdown is None,
            draining=self.shell.table.shutdown is not None,
            agents=len(self.shell.lives),
            clients=self._board.clients,
            uptime_ms=now_ms() - self._began_ms,
            bad_frames=self._board.foreign_frames,
        )

    def _lost(self, client: Client) -> None:
        self._board.lost(client)

    def _client_gone(self, client: Client) -> None:
        self._owners.forget(client)
        if client.number not in self._gone:
            self._gone.add(client.number)
            self._feed(inputs.ClientGone(client.number))

    def _abused(self, port: Port, detail: str) -> None:
        report("agent.abuse", agent=port.name, incarnation=port.text, detail=detail)
        self._feed(inputs.AbuseSeen(port.incarnation, detail))
        # Nothing that comes after is believed, and it may be very much.
        life = self.shell.lives.get(port.incarnation)
        if life is not None:
            life.cut_off()

    # --- requests

    def _request(self, sender: Sender, said: envelopes.Request) -> None:
        caller = Caller(sender, said.call)
        if isinstance(sender, Client) and not sender.welcome:
            self._reply(caller, answers.Refused(Reason("not_allowed")))
            return
        wanted = said.request
        match wanted:
            case requests.StartAgent():
                self._start(caller, wanted)
            case requests.StopAgent():
                self._stop(caller, wanted)
            case requests.Whereis():
                handle = whereis(self.shell.table, codec.name_key(wanted.name))
                self._reply(caller, answers.Found(handle=handle))
            case requests.ListAgents():
                self._ping_all()
                self._reply(caller, answers.Listing(rows=self._rows()))
            case requests.MonitorAgent():
                self._feed(
                    inputs.MonitorRequested(
                        call=caller,
                        client=sender.number,
                        monitor=wanted.monitor,
                        handle=wanted.handle,
                    )
                )
            case requests.DemonitorAgent():
                self._feed(
                    inputs.DemonitorRequested(
                        call=caller, client=sender.number, monitor=wanted.monitor
                    )
                )
            case requests.OpenGroup():
                self._feed(
                    inputs.GroupOpenRequested(
                        call=caller, client=sender.number, owner_pid=sender.pid or None
                    )
                )
            case requests.CloseGroup():
                self._feed(
                    inputs.GroupCloseRequested(
                        call=caller, client=sender.number, group=wanted.group
                    )
                )
            case requests.WatchTelemetry():
                self._watch_telemetry(caller, wanted)
            case _:
                assert_never(wanted)

    def _reply(self, caller: Caller, answer: Any) -> None:
        self._board.say(caller.sender, envelopes.Reply(call=caller.call, answer=answer))

    def _start(self, caller: Caller, wanted: requests.StartAgent) -> None:
        error = self._not_allowed(caller.sender)
        if error is None:
            split = limits.split_options(wanted.options)
            if isinstance(split, StartError):
                error = split
        if error is not None:
            self._reply(caller, effects.NotStarted(error))
            return
        assert not isinstance(split, StartError)
        terms = Terms(
            name=wanted.name,
            key=codec.name_key(wanted.name),
            spec=wanted,
            group=wanted.group,
            restart=wanted.restart,
            shutdown_ms=split[0].shutdown_ms,
            start_timeout_ms=wanted.start_timeout_ms,
        )
        self._feed(inputs.StartRequested(call=caller, client=caller.sender.number, terms=terms))

    def _not_allowed(self, sender: Sender) -> StartError | None:
        if isinstance(sender, Client) or self.shell.lives[sender.incarnation].start.may_start:
            return None
        return StartError(
            kind="not_allowed",
            message="this agent may not start others; start it with may_start=true",
        )

    def _stop(self, caller: Caller, wanted: requests.StopAgent) -> None:
        key = codec.name_key(wanted.name)
        sender = caller.sender
        if isinstance(sender, Port) and key == codec.name_key(sender.name):
            self._reply(caller, answers.Refused(Reason("self_stop")))
            return
        self._feed(
            inputs.StopRequested(call=caller, client=sender.number, key=key, group=wanted.group)
        )

    def _watch_telemetry(self, caller: Caller, wanted: requests.WatchTelemetry) -> None:
        sender = caller.sender
        if not isinstance(sender, Client):
            self._reply(caller, answers.Refused(Reason("not_allowed")))
            return
        sender.watches_telemetry = wanted.on
        self._tell_telemetry()
        self._reply(caller, answers.Ok())

    def _tell_telemetry(self) -> None:
        """Have every agent say what happens, if somebody watches."""
        if self._board.telemetry_watched:
            for port in self._board.ports():
                self._want_records(port, wanted=True)

    def _take_record(self, port: Port, body: bytes, records: int) -> None:
        self._board.broadcast_telemetry(body, records)
        # Not before: whoever begins and ends to watch, again and again, would otherwise have
        # more said to an agent that hears nothing for a while than the agent ever caused.
        if not self._board.telemetry_watched:
            self._want_records(port, wanted=False)

    def _want_records(self, port: Port, *, wanted: bool) -> None:
        if port.watched != wanted:
            port.watched = wanted
            self._board.say(port, envelopes.TelemetryWanted(on=wanted))

    # --- what is known of agents

    def _rows(self) -> tuple[answers.AgentRow, ...]:
        return tuple(self._row(child) for child in self.shell.table.children.values())

    def _row(self, child: Child) -> answers.AgentRow:
        start: Any = child.terms.spec
        life = self.shell.lives.get(child.last)
        return answers.AgentRow(
            name=child.terms.name,
            state=child.phase,
            handle=handle_of(self.shell.table, child),
            agent=start.agent,
            backend=start.backend,
            group=child.terms.group,
            age_ms=_age_ms(child, life),
            restarts=len(child.restarts),
            reason=brief.in_a_row(child.reason),
            error=brief.error_in_a_row(self._with_log(child)),
            unresponsive_since_ms=self._silence_ms(life),
            log=self.shell.log_of(child),
            group_owner_pid=self._owner_pid(child.terms.group),
            watchdog_ms=_watchdog_ms(start),
        )

    def _owner_pid(self, group: int | None) -> int | None:
        found = None if group is None else self.shell.table.groups.get(group)
        owner = None if found is None else self._board.sender(found.owner)
        # Who is in another pid namespace has no number here.
        return None if owner is None else owner.pid or None

    def _with_log(self, child: Child) -> StartError | None:
        """Return why its last start failed, with the log of that if it is the last one."""
        if child.error is None or child.last in self.shell.lives:
            return child.error
        return replace(child.error, log=self.shell.log_of(child))

    def _silence_ms(self, life: Life | None) -> int | None:
        if life is None or not life.unresponsive or life.pinged_ms is None:
            return None
        return now_ms() - life.pinged_ms

    def _ping_all(self) -> None:
        for incarnation, life in self.shell.lives.items():
            child = child_of(self.shell.table, incarnation)
            ready = child is not None and child.phase == "running"
            if ready and life.port is not None and life.pinged_ms is None:
                life.pinged_ms = now_ms()
                self._board.say(life.port, envelopes.Ping(call=incarnation.number))
                self._pings.arm(incarnation, UNRESPONSIVE_MS)

    def _not_answered(self, incarnation: Incarnation) -> None:
        life = self.shell.lives.get(incarnation)
        if life is None:
            return
        life.unresponsive = True
        self.shell.emit(
            "agent.unresponsive", FrozenDict(agent=life.start.name, incarnation=incarnation.text)
        )

    def _answered(self, incarnation: Incarnation) -> None:
        life = self.shell.lives[incarnation]
        life.pinged_ms = None
        self._pings.disarm(incarnation)
        if life.unresponsive:
            life.unresponsive = False
            self.shell.emit(
                "agent.responsive", FrozenDict(agent=life.start.name, incarnation=incarnation.text)
            )

    def dump(self) -> None:
        """Write what is known of the daemon and of each agent into the log; no payload."""
        agents, clients = self.counts
        report(
            "dump",
            agents=agents,
            clients=clients,
            groups=len(self.shell.table.groups),
            shutdown=self.shell.table.shutdown,
            uptime_ms=now_ms() - self._began_ms,
            bad_frames=self._board.foreign_frames,
            descriptors=kernel.open_descriptors(),
            reachable=self._board.reachable,
        )
        for row in self._rows():
            report(
                "dump.agent",
                agent=row.name,
                incarnation=None if row.handle is None else row.handle.incarnation.text,
                pid=None if row.handle is None else row.handle.pid,
                state=row.state,
                backend=row.backend,
                age_ms=row.age_ms,
                restarts=row.restarts,
                group=row.group,
                group_owner_pid=row.group_owner_pid,
                reason=None if row.reason is None else row.reason.text,
                unresponsive_since_ms=row.unresponsive_since_ms,
            )

    def reconfigure(self, config: Config) -> None:
        """Go on with *config*: what it says of starts concerns later ones.

        This does not change how agents are started (`start_method`).
        """
        waits = config.start_method != self._config.start_method
        self._config = replace(config, start_method=self._config.start_method)
        self.shell.reconfigure(config)
        report(
            "config.reloaded",
            grace_ms=config.grace_ms,
            pass_env=list(config.pass_env),
            log_format=config.log_format,
            at_next_start=["start_method"] if waits else [],
        )

    def renew(self) -> None:
        """Be reachable again, if somebody removed our socket's file."""
        self._board.renew()
        if not self._board.reachable:
            warn("socket.taken", path=self._places.socket)

    # --- the end

    def shut_down(self, *, force: bool) -> None:
        """Begin to end or, with *force*, end now.

        `finished` is set when all is gone. Who is to end now and was not asked before
        has half a second to say which requests it leaves.
        """
        self._feed(inputs.ShutdownRequested(grace_ms=self._config.grace_ms, forced=force))

    @property
    def stopping(self) -> bool:
        """Whether a shutdown has begun."""
        return self.shell.table.shutdown is not None

    @property
    def counts(self) -> tuple[int, int]:
        """How many agents and clients there are."""
        return len(self.shell.lives), self._board.clients

    async def close(self) -> None:
        """Close everything; call it when the shell has finished."""
        self._board.close()
        self._owners.close()
        self._pings.disarm_all()
        await self.shell.close()


def _age_ms(child: Child, life: Life | None) -> int:
    """Return the age of this life or, where there is none, how long that has been so."""
    if child.life is None:
        return now_ms() - child.ended_at_ms
    return 0 if life is None else now_ms() - life.began_ms


def _watchdog_ms(start: requests.StartAgent) -> int | None:
    """Return how long a turn may last; what a start says of it was checked when it came."""
    split = limits.split_options(start.options)
    return None if isinstance(split, StartError) else split[0].watchdog_ms
