"""S264: exact round robin also under concurrency, and nothing of a refusal is invented."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from examples.patterns.company import Voice, Watch
from examples.patterns.pool import Pool
from genagentd import Client, Refused
from genagentd.messages import Overloaded
from genagentd.testing import Gates, breaks, echoes, holds, scripted

pytestmark = pytest.mark.process


def _held(gates: Gates, number: int) -> Voice:
    return Voice("scripted", scripted(holds(f"w{number}", "held"), gates=gates))


def test_s264_four_hundred_submissions_land_a_hundred_each(
    genagent_client: Client, genagent_gates: Gates
) -> None:
    """Eight threads submit at once; the counter is one."""
    pool = Pool(genagent_client, "w", [_held(genagent_gates, number) for number in range(4)])

    with ThreadPoolExecutor(8) as threads:
        submitted = list(threads.map(lambda n: pool.submit(f"task {n}"), range(400)))

    assert Counter(worker.name for worker, _ in submitted) == {f"w-{n}": 100 for n in range(1, 5)}
    assert len({ref for _, ref in submitted}) == 400
    assert not pool.quiet()
    for worker in pool.workers:
        snapshot = genagent_client.runtime_snapshot(worker.name)
        assert snapshot.pending_prompts + (snapshot.phase == "processing") == 100


@pytest.mark.parametrize(
    ("limits", "limit"),
    [({"max_pending_prompts": 1}, "count"), ({"max_pending_prompt_bytes": 12}, "bytes")],
)
def test_an_overload_belongs_to_its_task_and_takes_its_turn(
    genagent_client: Client, genagent_gates: Gates, limits: dict[str, object], limit: str
) -> None:
    """The refused task has no ref, and the next one goes to the next worker."""
    voices = [_held(genagent_gates, number) for number in range(2)]
    pool = Pool(genagent_client, "w", voices, limits=limits)
    for _ in range(4):
        pool.submit("a task")

    with pytest.raises(Refused) as refused:
        pool.submit("a task")
    assert isinstance(refused.value.reason, Overloaded)
    assert (refused.value.reason.queue, refused.value.reason.limit) == ("prompts", limit)

    with pytest.raises(Refused):
        pool.submit("a task")
    genagent_gates.wait_blocked("w0")
    genagent_gates.release("w0")


def test_equal_tasks_stay_distinct_and_a_failure_is_a_result(
    genagent_client: Client, watch: Watch
) -> None:
    """The worker that failed serves on."""
    voice = Voice("scripted", scripted(echoes(), breaks("lost"), echoes()))
    pool = Pool(genagent_client, "w", [voice])

    refs = [pool.submit("the same")[1] for _ in range(3)]
    pool.wait_quiet(watch)

    results = pool.results()
    assert [results[ref.text].get("text") for ref in refs] == ["the same", None, "the same"]
    assert results[refs[1].text]["error"] == "backend_failed: lost"


def test_stopping_extras_keeps_the_rest(genagent_client: Client, watch: Watch) -> None:
    """The rotation goes on among those that stay."""
    echo = Voice("scripted", scripted(echoes(), repeat=True))
    pool = Pool(genagent_client, "w", [echo] * 3)
    stay = pool.workers[:2]

    pool.shrink(2)

    assert {row.handle for row in genagent_client.list()} == set(stay)
    assert {pool.submit(f"{n}")[0] for n in range(4)} == set(stay)
    pool.wait_quiet(watch)
    pool.close()
    assert genagent_client.list() == ()
