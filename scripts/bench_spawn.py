"""How long an agent takes to start and what it weighs, beside a bare fork and a bare interpreter.

Usage: bench_spawn.py [--agents N] [--method forkserver|spawn]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from genagentd import Client
from genagentd.testing import PrivateDaemon

#: Between two starts of the second row: who waits to be the next agent is ready by then.
PAUSE_S = 0.05
TARGET_READY_MS = 10
TARGET_PSS_MIB = 5


def timed_ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1_000


def fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def interpreter() -> None:
    subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)


def pss_mib(pid: int) -> float:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--method", default="forkserver", choices=["forkserver", "spawn"])
    wanted = parser.parse_args()
    forks = [timed_ms(fork) for _ in range(50)]
    interpreters = [timed_ms(interpreter) for _ in range(10)]
    environment = {"GENAGENT_START_METHOD": wanted.method}
    with PrivateDaemon(environment=environment) as daemon, Client(daemon.places.run) as client:
        client.start_agent(None, name="warm", backend="echo")
        starts, paused, pids = [], [], []
        for number in range(wanted.agents):
            started = paused if number % 2 else starts
            time.sleep(PAUSE_S if number % 2 else 0)
            began = time.perf_counter()
            handle = client.start_agent(None, name=number, backend="echo")
            started.append((time.perf_counter() - began) * 1_000)
            pids.append(handle.pid)
        weights = [pss_mib(pid) for pid in pids]
    ready, bare = statistics.median(starts), statistics.median(forks)
    fresh = statistics.median(interpreters)
    print(f"start of an agent by {wanted.method}, {wanted.agents} of them, one at a time")
    print(f"  bare fork              p50 {bare:8.2f} ms")
    print(f"  bare interpreter       p50 {fresh:8.2f} ms")
    print(
        f"  agent, call to answer  p50 {ready:8.2f} ms   "
        f"min {min(starts):.2f}   {ready / fresh:.2f} x a bare interpreter   "
        f"(target {TARGET_READY_MS} ms)"
    )
    rested = statistics.median(paused)
    print(
        f"  after a pause          p50 {rested:8.2f} ms   "
        f"min {min(paused):.2f}   {rested / fresh:.2f} x a bare interpreter   "
        f"(target {TARGET_READY_MS} ms)"
    )
    print(
        f"  PSS of an idle agent   p50 {statistics.median(weights):8.2f} MiB  "
        f"(target {TARGET_PSS_MIB} MiB)"
    )


if __name__ == "__main__":
    main()
