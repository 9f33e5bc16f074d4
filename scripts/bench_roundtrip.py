"""What the way through the daemon costs: polls and pipelined submits, beside raw ZeroMQ.

Usage: bench_roundtrip.py [--calls N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time

import zmq

from genagentd import Client, Completion
from genagentd.testing import PrivateDaemon


def raw_us(calls: int) -> float:
    """Return the median round trip of an echo between two processes over raw pyzmq."""
    with tempfile.TemporaryDirectory(prefix="ga") as directory:
        address = f"ipc://{directory}/s"
        child = os.fork()
        if child == 0:
            here = zmq.Context()
            router = here.socket(zmq.ROUTER)
            router.bind(address)
            for _ in range(calls + 1):
                router.send_multipart(router.recv_multipart())
            router.close(1_000)
            here.term()  # the last answer has left before the process does
            os._exit(0)
        context = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.connect(address)
        took = []
        for _ in range(calls + 1):
            began = time.perf_counter()
            dealer.send(b"x" * 100)
            dealer.recv()
            took.append((time.perf_counter() - began) * 1e6)
        dealer.close(0)
        context.term()
        os.waitpid(child, 0)
    return statistics.median(took[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000)
    wanted = parser.parse_args()
    raw = raw_us(wanted.calls)
    with PrivateDaemon() as daemon, Client(daemon.places.run) as client:
        limits = {"max_pending_prompts": wanted.calls}
        handle = client.start_agent(None, name="a", backend="echo", limits=limits)
        agent = client.at(handle)
        ref = agent.submit_with_completion("warm").ref
        polls = []
        for _ in range(wanted.calls):
            began = time.perf_counter()
            agent.poll(ref)
            polls.append((time.perf_counter() - began) * 1e6)
        asks = []
        for _ in range(wanted.calls // 10):
            began = time.perf_counter()
            client.ask("a", "x")
            asks.append((time.perf_counter() - began) * 1e6)
        began, done = time.perf_counter(), 0
        for _ in range(wanted.calls):
            agent.submit_with_completion("x")
        while done < wanted.calls:
            done += isinstance(client.receive(30_000), Completion)
        turns = wanted.calls / (time.perf_counter() - began)
    poll = statistics.median(polls)
    print(f"through the daemon and back, {wanted.calls} calls")
    print(f"  raw ZeroMQ echo          p50 {raw:8.0f} us")
    print(f"  poll by handle           p50 {poll:8.0f} us   {poll / raw:.1f} x")
    ask = statistics.median(asks)
    print(f"  ask by name, echo turn   p50 {ask:8.0f} us   {ask / raw:.1f} x")
    print(f"  pipelined echo turns         {turns:8.0f} a second")


if __name__ == "__main__":
    main()
