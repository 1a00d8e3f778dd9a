import asyncio

import pytest

from airflow_learner_provider.cluster.pace import Pace


@pytest.mark.parametrize(("many", "seconds"), [(5, 0.0), (8, 0.3)], ids=["burst", "more"])
async def test_what_is_more_than_a_burst_has_to_wait(many: int, seconds: float) -> None:
    pace = Pace(a_second=10, burst=4)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await asyncio.gather(*(pace.take() for _ in range(many)))
    assert loop.time() - begun >= seconds * 0.99


async def test_who_gives_up_leaves_its_turn_to_the_next() -> None:
    pace = Pace(a_second=0.001, burst=0)
    await pace.take()
    first = asyncio.create_task(pace.take())
    second = asyncio.create_task(pace.take())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    await asyncio.sleep(0)
    assert not second.done()
    second.cancel()
    await asyncio.wait([second])
