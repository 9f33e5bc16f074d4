"""How soon a kill is told: SIGKILL to the DOWN in a client's mailbox, beside the kernel's own word.

Usage: bench_down.py [--kills N]
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import statistics
import subprocess
import time

from genagentd import Client, Down
from genagentd.testing import PrivateDaemon


def bare_ms() -> float:
    """Return how long a pidfd takes to tell the end of a killed, tiny process."""
    process = subprocess.Popen(["sleep", "60"])
    pidfd = os.pidfd_open(process.pid)
    began = time.perf_counter()
    process.kill()
    select.select([pidfd], [], [])
    took = (time.perf_counter() - began) * 1_000
    os.close(pidfd)
    process.wait()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    wanted = parser.parse_args()
    kernel = sorted(bare_ms() for _ in range(wanted.kills))
    told = []
    with PrivateDaemon() as daemon, Client(daemon.places.run) as client:
        for number in range(wanted.kills):
            handle = client.start_agent(None, name=number, backend="echo")
            client.at(handle).monitor()
            client.list()  # The monitor is known once something behind it was answered.
            began = time.perf_counter()
            os.kill(handle.pid, signal.SIGKILL)
            while not isinstance(client.receive(10_000), Down):
                pass
            told.append((time.perf_counter() - began) * 1_000)
    told.sort()
    last = max(0, int(wanted.kills * 0.99) - 1)
    p50 = statistics.median(told)
    print(f"kill -9 to DOWN, {wanted.kills} times")
    print(f"  pidfd of a tiny process  p50 {statistics.median(kernel):7.2f} ms")
    print(
        f"  DOWN in the mailbox      p50 {p50:7.2f} ms   p99 {told[last]:.2f}   "
        f"{p50 / statistics.median(kernel):.1f} x   (target p50 50 ms, p99 500 ms)"
    )


if __name__ == "__main__":
    main()
