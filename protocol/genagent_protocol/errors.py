"""The exceptions of the product, in one tree.

GenAgentError
├── UsageError            the caller broke a precondition; nothing was sent
│   ├── SendBufferFull    this client has too much unsent; nothing was sent, no ref minted
│   └── TooLarge          a prompt or event over the limit; nothing was sent, no ref minted
├── Refused               the agent or the daemon said no; `reason` is the typed answer
│   └── StartFailed       an agent could not be started; nothing of it is left
├── TurnFailed            an `ask` was accepted and its turn failed; `reason` says why
├── FunctionFailed        a called function gave no value; `code` says why
├── CallError             a synchronous call ended without an answer
│   ├── CallTimeout       no answer in time; `fate` is what is known of its effect
│   ├── ProcessDown       the captured process died before it answered
│   └── DaemonLost        the connection to the daemon ended before the answer
├── NotReachable          no daemon answers at the runtime directory; nothing was sent
├── VersionMismatch       client and daemon share no version of the protocol
├── WireError             bytes that are not ours
│   ├── LocalWireError    this side was asked to send what the wire cannot carry
│   └── RemoteWireError   the peer sent what the protocol does not allow
└── InvalidTransition     a shell broke a machine's law; a bug in this product

Refusals are values inside `protocol/`; they become exceptions only at the
client's surface, where a person reads them. Each message is one whole thought,
and the facts in it are attributes too.
"""

from __future__ import annotations

from genagent_protocol.reasons import ExitReason, Failure, PayloadTooLarge, StartError


class GenAgentError(Exception):
    """Everything this product raises on purpose. It pickles and copies, attributes and all.

    `hint` is what to do, where a message ends with that; `fact` is the message without it.
    """

    hint = ""

    @property
    def fact(self) -> str:
        """What happened, without what to do about it."""
        return str(self).removesuffix(f"; {self.hint}")

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call __init__ with the finished message, which is not what it takes.
        return (_revived, (type(self), self.args), self.__dict__)


def _revived(kind: type[GenAgentError], args: tuple[object, ...]) -> GenAgentError:
    return kind.__new__(kind, *args)


class UsageError(GenAgentError):
    """You called it wrongly: fix the call. Nothing was sent and nothing changed."""


class SendBufferFull(UsageError):
    """This client holds more unsent bytes than it may. Nothing was sent, no ref exists.

    Read your mailbox or wait for the daemon to take what is there, then try again.
    """


class TooLarge(UsageError):
    """Something is larger than one message may hold; `reason` has its size and the limit."""

    def __init__(self, message: str, reason: PayloadTooLarge) -> None:
        self.reason = reason
        super().__init__(message)


class Refused(GenAgentError):
    """The answer was no, and it is certain: branch on `reason.code`."""

    def __init__(self, message: str, reason: Failure | StartError) -> None:
        self.reason = reason
        super().__init__(message)


class StartFailed(Refused):
    """The agent could not be started: no process of it is left, its name is free."""

    reason: StartError


class TurnFailed(GenAgentError):
    """The prompt was accepted and its turn failed; `reason` is what the agent reported."""

    def __init__(self, message: str, reason: Failure) -> None:
        self.reason = reason
        super().__init__(message)


class FunctionFailed(GenAgentError):
    """A function of the other side gave no value: branch on `code`, show `text`.

    The codes of the protocol are in `genagentd.rpc`; any other is the function's own.
    A function that raises this is answered with exactly this code and text.
    """

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(f"{code}: {text}")


class CallError(GenAgentError):
    """A synchronous call ended without an answer."""


#: What is known of a call without an answer: it may have taken effect, or still may.
UNKNOWN_FATE = "its effect is unknown"


class CallTimeout(CallError):
    """No answer came within `timeout_ms`. The call may still take effect.

    `fate` says what is known of it: that nothing was changed, if all it did was to
    look; otherwise that its effect is unknown.
    """

    def __init__(self, call: str, timeout_ms: int, *, fate: str = UNKNOWN_FATE) -> None:
        self.call = call
        self.timeout_ms = timeout_ms
        self.fate = fate
        super().__init__(f"{call} got no answer within {timeout_ms} ms; {fate}")


class ProcessDown(CallError):
    """The captured process ended before it answered; `reason` is what its DOWN said.

    `fate` is that of `CallTimeout`.
    """

    def __init__(self, call: str, reason: ExitReason, *, fate: str = UNKNOWN_FATE) -> None:
        self.call = call
        self.reason = reason
        self.fate = fate
        super().__init__(f"{call}: the agent process is down ({reason}); {fate}")


class DaemonLost(CallError):
    """The connection to the daemon ended before the answer. Its agents end with it.

    `fate` says what is known of the call: that nothing was sent, if the connection
    had ended before; otherwise as `CallTimeout`.
    """

    def __init__(self, call: str, *, fate: str = UNKNOWN_FATE) -> None:
        self.call = call
        self.fate = fate
        super().__init__(f"{call}: the connection to the daemon was lost; {fate}")


class NotReachable(GenAgentError):
    """No daemon answers there. Nothing was sent, and nothing will run when one comes up."""

    def __init__(self, fact: str, *, hint: str = "") -> None:
        self.hint = hint
        super().__init__(f"{fact}; {hint}" if hint else fact)


class VersionMismatch(GenAgentError):
    """Client and daemon share no version of the protocol; nothing was executed."""

    def __init__(self, fact: str, *, hint: str = "") -> None:
        self.hint = hint
        super().__init__(f"{fact}; {hint}" if hint else fact)


class WireError(GenAgentError):
    """Bytes or values that the wire cannot carry."""


class LocalWireError(WireError):
    """This side was asked to send what cannot be sent. Nothing was sent."""


class RemoteWireError(WireError):
    """The peer sent what the protocol does not allow. The message was dropped."""


class InvalidTransition(GenAgentError):
    """A shell fed a machine an input that its step excludes: a bug, please report it."""
