"""A process with one end of a channel, told on its command line what to do with it.

    channel_peer.py VERB PATH [COUNT]

It waits for a line, does that, prints a line when it is done, and some then do nothing
until their input ends.
"""

from __future__ import annotations

import asyncio
import os
import sys

from genagentd import sockets
from genagentd.channels import BlockingConnection, Listener
from genagentd.socket_path import probe


def say(path: str, count: int) -> None:
    """Send *count* numbered messages, and leave when all are handed over."""
    connection = BlockingConnection(path, 30_000)
    for number in range(count):
        connection.send(b"header", b"%d" % number)
    connection.close(linger_ms=60_000)
    sockets.end_context()
    print("said", flush=True)


def stay(path: str, count: int) -> None:
    """Send *count* numbered messages and stay connected."""
    connection = BlockingConnection(path, 30_000)
    for number in range(count):
        connection.send(b"header", b"%d" % number)
    print("said", flush=True)
    sys.stdin.read()


def look(path: str, _count: int) -> None:
    """Look whether someone listens, and leave."""
    probe(path)
    print("looked", flush=True)


async def listen(path: str, _count: int) -> None:
    """Listen until the input ends."""
    listener = Listener(path, lambda _message: None, lambda _route: None)
    print("listening", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    listener.close()


def fork(path: str, _count: int) -> None:
    """Use a connection, fork, use another one in the child, and use the first one again."""
    connection = BlockingConnection(path, 30_000)
    connection.send(b"header", b"parent")
    child = os.fork()
    if child == 0:
        own = BlockingConnection(path, 30_000)
        own.send(b"header", b"child")
        own.close(linger_ms=60_000)
        sockets.end_context()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    connection.send(b"header", b"parent again")
    connection.close(linger_ms=60_000)
    sockets.end_context()
    print(f"child {status}", flush=True)


def main() -> None:
    """Do what the command line says."""
    verb, path, *count = sys.argv[1:]
    number = int(count[0]) if count else 0
    print("ready", flush=True)
    sys.stdin.readline()
    match verb:
        case "say":
            say(path, number)
        case "stay":
            stay(path, number)
        case "look":
            look(path, number)
        case "fork":
            fork(path, number)
        case "listen":
            asyncio.run(listen(path, number))


if __name__ == "__main__":
    main()
