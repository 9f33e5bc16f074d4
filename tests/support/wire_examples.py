"""One example of everything that travels, with as many fields set as it has."""

from __future__ import annotations

from typing import Any

from genagent_protocol.answers import (
    AgentRow,
    CancelAnswer,
    CurrentRequest,
    Found,
    InterruptAnswer,
    Listing,
    NotFound,
    Ok,
    PollCompleted,
    PollFailed,
    PollPending,
    Refused,
    Snapshot,
    Status,
    UiAttached,
)
from genagent_protocol.envelopes import (
    Admission,
    AgentHello,
    Call,
    CallerDown,
    Completion,
    CoreState,
    CoreStatus,
    CoreStop,
    Credit,
    CutOff,
    Down,
    EventMessage,
    Exiting,
    Gap,
    Halt,
    Hello,
    Interrupt,
    Leaving,
    Notify,
    Ping,
    Pong,
    Ready,
    RefuseTurns,
    Reply,
    Request,
    Resume,
    StartRefused,
    StopAsked,
    Stopping,
    Submit,
    Telemetry,
    TelemetryLost,
    TelemetryWanted,
    UiDetach,
    UiMessage,
    UiUndeliverable,
    Undeliverable,
    UnknownType,
    VersionRefused,
    Welcome,
)
from genagent_protocol.events import (
    Completed,
    EventCoverage,
    Failed,
    Omission,
    Response,
    event,
)
from genagent_protocol.header import DAEMON, Header
from genagent_protocol.plain import FrozenDict, freeze
from genagent_protocol.reasons import (
    AgentTerminated,
    BackendError,
    BackendFailed,
    EventCaptureOverflow,
    ExitReason,
    Overloaded,
    PayloadTooLarge,
    PreTurnCrashed,
    Reason,
    ResetFailed,
    StartError,
    TaskCrashed,
)
from genagent_protocol.refs import (
    AgentHandle,
    BootId,
    Incarnation,
    MailboxAddress,
    MonitorRef,
    RequestRef,
)
from genagent_protocol.requests import (
    Ask,
    AttachUi,
    CancelRequest,
    CloseGroup,
    DemonitorAgent,
    Drain,
    GetSnapshot,
    GetStatus,
    InterruptRequest,
    ListAgents,
    MonitorAgent,
    NotifyAck,
    OpenGroup,
    Poll,
    ResetSession,
    StartAgent,
    StopAgent,
    Tell,
    WatchTelemetry,
    Whereis,
)
from genagent_protocol.supervision.effects import GroupRunning, NotStarted, Started, Stopped
from genagent_protocol.supervision.terms import RestartPolicy

BOOT = BootId("0123456789abcdef")
INCARNATION = Incarnation(BOOT, 7)
REF = RequestRef.mint(INCARNATION, bytes(range(16)))
OTHER_REF = RequestRef.mint(INCARNATION, bytes(range(16, 32)))
MAILBOX = MailboxAddress(BOOT, 3)
BOX = MailboxAddress(BOOT, 3, 2)
PLACE = "host.example:/run/user/1000/genagentd"
NAME = freeze(["reviewer", 1])
HANDLE = AgentHandle(name=NAME, incarnation=INCARNATION, pid=4711, started_ticks=815, place=PLACE)
START = StartAgent(
    name=NAME,
    agent="reviews.agents:Reviewer",
    backend="echo",
    options=FrozenDict(watchdog_ms=60_000, max_events_per_turn=50),
    cwd="/home/user/reviews",
    env=FrozenDict(REVIEW_MODE="strict"),
    group=2,
    restart=RestartPolicy(
        kind="transient", max_restarts=3, period_ms=10_000, delay_ms=100, max_delay_ms=5_000
    ),
    start_timeout_ms=30_000,
    session="session-1",
    may_start=True,
)
#: A little of everything that a plain value can be.
ANYTHING = freeze(
    {
        "nothing": None,
        "yes": True,
        "small": -32,
        "least": -(2**63),
        "most": 2**64 - 1,
        "float": 1.0,
        "text": "grüße, 世界 \U0001f642",
        "bytes": b"\x00\xff",
        "list": [1, [2, [3]], []],
        "map": {"a": {}},
    }
)
TERMINAL = event("result", text="looks good", at_ms=120)
RESPONSE = Response(
    text="looks good",
    final_message="good",
    events=(event("text", text="looks ", at_ms=10), event("text", text="good", at_ms=12)),
    terminal=TERMINAL,
    event_coverage=EventCoverage(
        mode="compact",
        observed_events=5,
        retained_events=2,
        omitted_events=3,
        retained_bytes=64,
        first_omission=Omission(limit="events", event_kind="tool_use"),
    ),
    usage=FrozenDict(input_tokens=12, output_tokens=3),
    duration_ms=119,
    session_id="session-1",
    prompt="review this",
    metadata=FrozenDict(score=0.5),
)
CRASHED = ExitReason("callback_failed", freeze({"callback": "handle_response"}))

#: Every message that holds no request and no answer, in the order of the document.
MESSAGES: tuple[Any, ...] = (
    Ping(call=7),
    Pong(call=7, min_version=1, max_version=1),
    CoreStatus(call=8),
    CoreState(
        call=8,
        pid=4242,
        boot=BOOT,
        software="1.2.3",
        ready=True,
        draining=False,
        agents=2,
        clients=3,
        uptime_ms=86_400_000,
        bad_frames=1,
    ),
    CoreStop(call=9, force=True),
    Stopping(call=9),
    Hello(min_version=1, max_version=1, software="1.2.3"),
    VersionRefused(min_version=1, max_version=1, software="1.2.3"),
    Welcome(version=1, boot=BOOT, mailbox=MAILBOX, place=PLACE, software="1.2.3"),
    Credit(messages=4_096, bytes=1_179_648),
    CutOff(waiting_bytes=67_108_800, limit_bytes=67_108_864),
    UnknownType(tag="later", call=10),
    Ready(),
    StartRefused(
        error=StartError(
            kind="import_failed",
            message="reviews.agents cannot be imported in /home/user/reviews",
            detail="ModuleNotFoundError",
            log="/run/user/1000/genagentd/logs/reviewer.log",
        )
    ),
    Leaving(unresolved=(REF, OTHER_REF)),
    Exiting(reason=CRASHED, unresolved=(REF, OTHER_REF)),
    Telemetry(
        event="turn.stop",
        agent=NAME,
        incarnation=INCARNATION,
        measurements=FrozenDict(duration_ms=119, events=5),
        metadata=FrozenDict(turn=7),
    ),
    Submit(
        ref=REF,
        prompt="review this",
        recipient=MAILBOX,
        on_halt="fail",
        stream_to=BOX,
        deadline_ms=30_000,
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
        idempotency_key="review-17",
    ),
    Notify(event=ANYTHING),
    Interrupt(),
    Resume(),
    Halt(),
    AgentHello(incarnation=INCARNATION, place=PLACE, start=START, telemetry=True),
    StopAsked(reason=ExitReason("shutdown"), drain=True),
    RefuseTurns(),
    CallerDown(caller=INCARNATION),
    TelemetryWanted(on=True),
    Admission(agent=NAME, ref=REF, refused=Reason("draining")),
    EventMessage(agent=NAME, ref=REF, event=event("text", text="looks ", at_ms=10)),
    Completion(agent=NAME, ref=REF, outcome=Completed(RESPONSE)),
    Gap(ref=REF, first=3, last=9),
    Undeliverable(agent=NAME, ref=REF, reason=Reason("inbox_full")),
    UiMessage(
        message=FrozenDict(
            version="v1.0",
            rendererFunctionResponse=FrozenDict(
                functionCallId="call-1", value=FrozenDict(approved=True)
            ),
        )
    ),
    UiDetach(),
    UiUndeliverable(session=3, reason=Reason("inbox_full")),
    Down(monitor=MonitorRef(5), handle=HANDLE, reason=ExitReason("signal:9")),
    TelemetryLost(count=12),
)

#: Every request, in its message.
ASKED: tuple[Request | Call, ...] = (
    Request(call=11, request=START),
    Request(call=12, request=StopAgent(name=NAME, group=2)),
    Request(call=13, request=Whereis(name=NAME)),
    Request(call=14, request=ListAgents()),
    Request(call=15, request=MonitorAgent(monitor=MonitorRef(5), handle=HANDLE)),
    Request(call=16, request=DemonitorAgent(monitor=MonitorRef(5))),
    Request(call=17, request=OpenGroup()),
    Request(call=18, request=CloseGroup(group=2)),
    Request(call=19, request=WatchTelemetry(on=False)),
    Call(call=20, request=Ask(ref=REF, prompt="review this")),
    Call(
        call=21,
        request=Tell(
            ref=REF, prompt="review this", recipient=INCARNATION, on_halt="fail", stream_to=MAILBOX
        ),
    ),
    Call(call=22, request=Poll(ref=REF)),
    Call(call=23, request=NotifyAck(event=ANYTHING)),
    Call(call=24, request=CancelRequest(ref=REF)),
    Call(call=25, request=InterruptRequest(ref=REF)),
    Call(call=26, request=GetStatus()),
    Call(call=27, request=GetSnapshot()),
    Call(call=28, request=ResetSession()),
    Call(call=29, request=Drain()),
    Call(call=38, request=AttachUi(session=3, catalog_ids=("urn:genagentd:terminal",))),
)

#: Every answer, in a reply.
ANSWERED: tuple[Reply, ...] = (
    Reply(call=20, answer=Ok()),
    Reply(call=21, answer=Refused(Reason("halted"))),
    Reply(call=22, answer=Completed(RESPONSE)),
    Reply(call=23, answer=Failed(Reason("interrupted"))),
    Reply(call=24, answer=PollPending()),
    Reply(call=25, answer=PollCompleted(RESPONSE)),
    Reply(call=26, answer=PollFailed(Reason("timeout"))),
    Reply(call=27, answer=NotFound()),
    Reply(call=28, answer=CancelAnswer("already_finished")),
    Reply(call=29, answer=InterruptAnswer("not_current")),
    Reply(
        call=30,
        answer=Snapshot(
            phase="processing",
            halted=False,
            halt_pending=True,
            draining=False,
            pending_prompts=2,
            pending_notifications=1,
            self_chain_pending=False,
            current_request=CurrentRequest(
                ref=REF, origin="self_chain", attempt=2, elapsed_ms=1_500, watchdog_ms=None
            ),
        ),
    ),
    Reply(
        call=31,
        answer=Status(
            state="idle",
            name=NAME,
            queued=0,
            current_request=None,
            halted=True,
            halt_pending=False,
            draining=False,
            agent_state="ReviewState",
        ),
    ),
    Reply(call=32, answer=Started(HANDLE)),
    Reply(
        call=33,
        answer=NotStarted(
            StartError(
                kind="already_started", message="the name is taken", detail=INCARNATION.text
            ),
            HANDLE,
        ),
    ),
    Reply(call=34, answer=Stopped(ExitReason("shutdown"))),
    Reply(call=35, answer=Found(handle=None)),
    Reply(
        call=36,
        answer=Listing(
            rows=(
                AgentRow(
                    name=NAME,
                    state="running",
                    handle=HANDLE,
                    agent="reviews.agents:Reviewer",
                    backend="echo",
                    group=2,
                    age_ms=60_000,
                    restarts=1,
                    reason=ExitReason("exit:3"),
                    unresponsive_since_ms=4_000,
                    log="/run/user/1000/genagentd/logs/reviewer.log",
                    group_owner_pid=4711,
                    watchdog_ms=600_000,
                ),
                AgentRow(
                    name="plain",
                    state="failed",
                    error=StartError(kind="init_failed", message="init said no"),
                ),
            )
        ),
    ),
    Reply(call=37, answer=GroupRunning(2)),
    Reply(call=38, answer=UiAttached(functions=("look_up_build",))),
)

#: Every failure, in a completion.
FAILURES: tuple[Any, ...] = tuple(
    Completion(agent=NAME, ref=REF, outcome=Failed(reason))
    for reason in (
        Reason("no_terminal_event"),
        Overloaded(
            queue="prompts",
            limit="bytes",
            pending_count=3,
            pending_bytes=1_048_000,
            incoming_bytes=2_000,
            max_count=1_000,
            max_bytes=1_048_576,
        ),
        EventCaptureOverflow(
            limit="events",
            max_events=1_000,
            max_bytes=1_048_576,
            retained_events=1_000,
            retained_bytes=65_536,
            rejected_event_kind="text",
            rejected_event_bytes=64,
        ),
        TaskCrashed("ZeroDivisionError", "division by zero"),
        PreTurnCrashed("KeyError"),
        BackendFailed(ANYTHING),
        BackendError(
            provider="anthropic",
            kind="rate_limited",
            retryable=True,
            status=429,
            retry_after="30",
            message="too many requests",
            raw=FrozenDict(type="rate_limit_error"),
        ),
        PayloadTooLarge(16_800_000, 16_777_216),
        ResetFailed("OSError"),
        AgentTerminated(CRASHED),
    )
)

#: Headers as they go with such messages: what it is called, what it shows, the header.
HEADERS: tuple[tuple[str, str, Header], ...] = (
    (
        "hello",
        "A client's first message to the daemon; it need not say who it is.",
        Header("hello", DAEMON, size=42),
    ),
    (
        "submit",
        "A submit for an agent, with the ref it is about.",
        Header("submit", INCARNATION.text, ref=REF.text, size=200),
    ),
    (
        "session",
        "A message of a client's session 3, as the daemon hands it on to the agent.",
        Header("ui_message", INCARNATION.text, MAILBOX.text, ref="3", size=96),
    ),
    (
        "answer",
        "What a client says in a session, about a call of the agent.",
        Header("ui_message", INCARNATION.text, MAILBOX.text, ref="3", size=96, answers=True),
    ),
    (
        "early",
        "What an agent gets before twelve messages that were said before it.",
        Header("down", INCARNATION.text, DAEMON, size=128, behind=12),
    ),
    (
        "call",
        "A call, whose ref is its number, as the daemon hands it on.",
        Header("call", INCARNATION.text, MAILBOX.text, ref="20", size=96),
    ),
    (
        "events",
        "Four events in one body; they may give way and are numbered 3 to 6.",
        Header(
            "event_message",
            MAILBOX.text,
            INCARNATION.text,
            "droppable",
            REF.text,
            first=3,
            last=6,
            bodies=4,
            size=512,
        ),
    ),
    (
        "batch",
        "An admission and a completion in one body, for a further mailbox.",
        Header("batch", BOX.text, INCARNATION.text, bodies=2, size=1_024),
    ),
    (
        "telemetry",
        "One telemetry record on its way to a client that watches.",
        Header("telemetry", MAILBOX.text, DAEMON, "droppable", first=12, last=12, size=80),
    ),
)
