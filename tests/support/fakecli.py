"""A stand-in for a provider's program: does what a scenario says, and writes down what it got.

Run as a program, with the standard library only. The scenario is a JSON file named
by the environment variable FAKECLI_SCENARIO: `{"runs": [[step, ...], ...]}`, one
list per run of the program, the last one repeated. Next to it, `LOG` gets one line
of JSON per run: argv, and what was read of standard input.

Steps, told by their key:

    {"line": {...}}            a line of JSON
    {"file": PATH}             a file, byte for byte; with "cut": N in pieces of N bytes
    {"raw": "text"}            text as it is, without a newline
    {"long": N}                a line of JSON of about N bytes that means nothing
    {"stderr": N}              N bytes on standard error; {"complain": "text"} a text there
    {"read_stdin": true}       read standard input to its end
    {"hear": true}             read one line of standard input (for duplex)
    {"peek": true}             wait for the first bytes of standard input, and leave them there
    {"replay": "id"}           repeat the prompt that was heard last, by its id; "text": without one
    {"lives": "started"}       tell that about the prompt that was heard last
    {"asks": N}                N lines that ask for a permission
    {"until": "interrupt"}     read lines of standard input until one contains the text
    {"ignore": ["SIGINT"]}     ignore signals
    {"helpers": 3}             start sleepers in sessions of their own that hold the pipes
    {"touch": PATH}            create a file; {"fifo": PATH} write a byte to a FIFO
    {"noise": true}            say nothing that means anything, without a pause, for ever
    {"silence": true}          say nothing more, for ever
    {"on_interrupt": [steps]}  on SIGINT do these and exit
    {"close_stdout": true}     close standard output
    {"exit": N}                exit at once with N
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time

LIFETIME_S = 600


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    scenario_path = os.environ["FAKECLI_SCENARIO"]
    with open(scenario_path, encoding="utf-8") as file:
        runs = json.load(file)["runs"]
    log = Log(scenario_path + ".log")
    for step in runs[min(log.run, len(runs) - 1)]:
        perform(step, log)


class Log:
    """What this run got, on one line of its own that grows with it."""

    def __init__(self, path: str) -> None:
        self.folder = path
        os.makedirs(path, exist_ok=True)
        self.run = len(os.listdir(path))
        self.entry: dict[str, object] = {
            "argv": sys.argv[1:],
            "pid": os.getpid(),
            "cwd": os.getcwd(),
            "env": sorted(os.environ),
        }
        self.note()

    def note(self, **more: object) -> None:
        self.entry.update(more)
        path = os.path.join(self.folder, f"{self.run:03}.json")
        with open(path + "~", "w", encoding="utf-8") as file:
            json.dump(self.entry, file)
        os.replace(path + "~", path)


def perform(step: dict[str, object], log: Log) -> None:
    match step:
        case {"line": line}:
            write(json.dumps(line).encode() + b"\n")
        case {"file": str(path), **rest}:
            with open(path, "rb") as file:
                data = file.read()
            cut = rest.get("cut")
            size = cut if isinstance(cut, int) else len(data)
            for start in range(0, len(data), size):
                write(data[start : start + size])
        case {"raw": str(text)}:
            write(text.encode())
        case {"long": int(size)}:
            write(json.dumps({"type": "padding", "text": "x" * size}).encode() + b"\n")
        case {"stderr": int(size)}:
            sys.stderr.write("e" * size)
            sys.stderr.flush()
        case {"complain": str(text)}:
            sys.stderr.write(text)
            sys.stderr.flush()
        case {"read_stdin": True}:
            log.note(stdin=sys.stdin.buffer.read().decode())
        case {"hear": True}:
            heard = log.entry.setdefault("heard", [])
            assert isinstance(heard, list)
            heard.append(json.loads(sys.stdin.readline() or "null"))
            log.note()
            if heard[-1] is None:
                sys.exit(0)
        case {"peek": True}:
            select.select([sys.stdin], [], [])
        case {"noise": True}:
            while True:
                write(b"noise line\n" * 1_000)
        case {"replay": str(how)}:
            write(json.dumps(replay(log, with_id=how == "id")).encode() + b"\n")
        case {"lives": str(state)}:
            lived = {"type": "command_lifecycle", "state": state}
            heard = replay(log, with_id=True)["uuid"]
            write(json.dumps({**lived, "command_uuid": heard}).encode() + b"\n")
        case {"asks": int(count)}:
            for number in range(count):
                question = {"type": "control_request", "request_id": f"q-{number}"}
                write(json.dumps(question).encode() + b"\n")
        case {"until": str(text)}:
            while text not in (line := sys.stdin.readline()):
                if not line:
                    sys.exit(0)
        case {"ignore": list(names)}:
            for name in names:
                signal.signal(signal.Signals[name], signal.SIG_IGN)
        case {"helpers": int(count)}:
            log.note(helpers=[helper() for _ in range(count)])
        case {"touch": str(path)}:
            with open(path, "w", encoding="utf-8"):
                pass
        case {"fifo": str(path)}:
            with open(path, "wb") as fifo:
                fifo.write(b".")
        case {"silence": True}:
            time.sleep(LIFETIME_S)
        case {"on_interrupt": list(steps)}:
            signal.signal(signal.SIGINT, lambda _number, _frame: leave(steps, log))
        case {"close_stdout": True}:
            os.close(1)
        case {"exit": int(status)}:
            os._exit(status)
        case _:
            raise SystemExit(f"no such step: {step}")


def replay(log: Log, *, with_id: bool) -> dict[str, object]:
    heard = log.entry["heard"]
    assert isinstance(heard, list)
    [*_, prompt] = [line for line in heard if line["type"] == "user"]
    said = {"type": "user", "message": prompt["message"], "isReplay": True}
    return {**said, "uuid": prompt.get("uuid")} if with_id else said


def leave(steps: list[dict[str, object]], log: Log) -> None:
    for step in steps:
        perform(step, log)
    os._exit(130)


def write(data: bytes) -> None:
    # Straight to the descriptor: how the bytes are cut is part of the scenario.
    while data:
        data = data[os.write(1, data) :]


def helper() -> int:
    return subprocess.Popen(["sleep", str(LIFETIME_S)], start_new_session=True).pid


if __name__ == "__main__":
    main()
