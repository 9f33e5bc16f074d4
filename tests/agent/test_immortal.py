"""What the helper has made immortal is not counted; what comes later is, and is freed as ever."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from genagentd.agent.immortal import possible

#: Each is run in an interpreter of its own, for what was made immortal stays so.
_WITH = "import gc, sys\nfrom genagentd.agent.immortal import immortalize, possible\n"
immortal_objects = pytest.mark.skipif(
    not possible(), reason="this interpreter has no immortal objects, or not where we know them"
)


def run(code: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-P", "-c", _WITH + code],
        env={**os.environ, "PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.strip()


@immortal_objects
def test_what_lived_is_not_counted_and_what_comes_is() -> None:
    said = run(
        "def used(): return 'a string of its own', (used, 1.5)\n"
        "held = [{'key': object()}, used]\n"
        "count = sys.getrefcount(None)\n"
        "made = immortalize()\n"
        "ours = [held, held[0], used, used.__code__, *used.__code__.co_consts, made.__class__]\n"
        "assert made > 10_000\n"
        "assert {sys.getrefcount(one) for one in ours} == {count}, ours\n"
        "later = [object()]\n"
        "before = sys.getrefcount(later)\n"
        "again = later\n"
        "assert sys.getrefcount(later) == before + 1\n"
        "print('seen')\n"
    )
    assert said == "seen"


@immortal_objects
def test_what_comes_later_is_freed_by_its_last_name_and_by_a_collection() -> None:
    said = run(
        "import weakref\n"
        "class Kept: pass\n"
        "immortalize(); gc.freeze()\n"
        "gone = []\n"
        "one = Kept(); weakref.finalize(one, gone.append, 'counted'); del one\n"
        "ring = Kept(); ring.own = ring\n"
        "weakref.finalize(ring, gone.append, 'collected'); del ring\n"
        "gc.collect()\n"
        "print(*gone)\n"
    )
    assert said == "counted collected"


@immortal_objects
def test_a_program_goes_on_and_ends_as_ever() -> None:
    """Interning, classes, changed values, free lists, threads, a full collection."""
    said = run(
        "import asyncio, enum, json, re, threading\n"
        "class Old: value = 'first'\n"
        "asyncio.run(asyncio.sleep(0))\n"
        "immortalize(); gc.freeze(); gc.unfreeze(); gc.collect()\n"
        "async def rounds():\n"
        "    for _ in range(1_000):\n"
        "        await asyncio.gather(*(asyncio.sleep(0, n) for n in range(5)))\n"
        "asyncio.run(rounds())\n"
        "for number in range(1_000):\n"
        "    Old.value = sys.intern(f'value{number}')\n"
        "    class New(Old): pass\n"
        "    setattr(New, f'name{number}', number)\n"
        "    json.loads(json.dumps({'a': [number, None, 1.5]}))\n"
        "    re.compile(f'a{number}+')\n"
        "thread = threading.Thread(target=gc.collect); thread.start(); thread.join()\n"
        "import email.message, decimal, xml.dom.minidom\n"
        "print(Old.value, New.value)\n"
    )
    assert said == "value999 value999"


@immortal_objects
def test_the_dead_are_left_alone() -> None:
    """A module of C code holds those that it would use again: here, of `asyncio`."""
    said = run(
        "import asyncio\n"
        "from genagentd.agent.immortal import _living\n"
        "async def awaited():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    future = loop.create_future()\n"
        "    loop.call_soon(future.set_result, None)\n"
        "    await future\n"
        "async def several():\n"
        "    await asyncio.gather(*(awaited() for _ in range(50)))\n"
        "asyncio.run(several())\n"
        "print({'FutureIter', 'str'} & {type(one).__name__ for one in _living()})\n"
    )
    assert said == "{'str'}"


def test_an_interpreter_that_counts_everything_is_left_as_it_is() -> None:
    said = run(
        "import genagentd.agent.immortal as room\n"
        "room.KNOWN = ()\n"
        "held = object()\n"
        "before = sys.getrefcount(held)\n"
        "print(possible(), immortalize(), sys.getrefcount(held) - before)\n"
    )
    assert said == "False 0 0"
