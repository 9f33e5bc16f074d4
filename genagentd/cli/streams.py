"""The three standard streams: there from the beginning, and no reason to fail at the end.

A program may be started with some of them closed, and what they lead to may be full.
Neither changes what became of a command. A closed one is a stream that nobody reads,
and its number must not be the number of the next socket that is opened.
"""

from __future__ import annotations

import os
import sys

#: Each stream, at the place of its descriptor.
_STREAMS = ("stdin", "stdout", "stderr")


def reopen_closed() -> None:
    """Let every standard stream that is closed lead to nowhere.

    `sys.stdin` stays None then: whoever wants to read says that it is closed. Call it
    before anything else is opened.
    """
    for number, name in enumerate(_STREAMS):
        # Python has looked, too: without a descriptor there is no stream.
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        # Whatever is started from here has standard streams, too.
        os.set_inheritable(number, True)
        if name != "stdin":
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def settle() -> None:
    """Drop what cannot be written any more, or Python would say so at exit, by another code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
