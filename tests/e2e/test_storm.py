"""A server in a storm of rude clients, meddling operators and sudden ends loses nothing, repeats nothing, and holds
nothing back when it is over. See ``tests.support.storm``."""

import os
import resource
from pathlib import Path

import pytest

from tests.support.storm import Plan, Storm
from tests.support.storm_guest import Manners
from tests.support.storm_operator import troubles

MINUTES = float(os.environ.get("TORPOR_SOAK_MINUTES", "5"))
"""How long the storm of the soak lasts, before everybody comes to rest."""
FLIGHTY = {"say": 30, "again": 15, "look_back": 2, "slow": 2, "leave": 10, "abort": 25, "vanish": 3}
"""What writers do who are mostly on their way out."""


async def weathered(folder: Path, plan: Plan) -> Storm:
    """A storm that has passed, of which nobody finds a fault."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    storm = Storm(folder, plan)
    await storm.rage()
    print(dict(sorted(storm.count.items())))
    assert storm.faults() == []
    assert troubles(storm.count) == []
    assert list(storm.grown()) == [], storm.held
    return storm


async def test_a_storm_passes_over_a_server_and_leaves_nothing_behind(tmp_path: Path) -> None:
    storm = await weathered(
        tmp_path,
        Plan(
            seed=1,
            rooms=14,
            guests=42,
            kills=3,
            life_s=(0.5, 2.0),
            live_max=9,
            operators=4,
            manners=Manners(pause_s=0.4),
        ),
    )
    assert storm.count["accepted"]
    assert storm.count["accepted again"]
    assert storm.count["hibernate: done"]


async def test_three_writers_of_one_conversation_see_one_order_whatever_ends(tmp_path: Path) -> None:
    manners = Manners(pause_s=0.15, back_s=0.2, doings=FLIGHTY)
    plan = Plan(seed=2, rooms=1, guests=8, kills=3, disconnects=30, life_s=(0.2, 1.0), again_s=0.5, manners=manners)
    storm = await weathered(tmp_path, plan)
    assert storm.count["accepted"]


@pytest.mark.soak
async def test_two_thousand_connections_of_five_hundred_conversations_for_minutes(tmp_path: Path) -> None:
    plan = Plan(
        seed=3,
        rooms=500,
        guests=2_000,
        kills=0,
        lasts_s=60 * MINUTES,
        life_s=(15.0, 45.0),
        patience_s=20.0,
        live_max=300,
        again_s=20.0,
        rest_s=300.0,
        operators=12,
        manners=Manners(pause_s=30.0, back_s=2.0, slow_s=15.0, words=2_000),
    )
    storm = await weathered(tmp_path, plan)
    assert storm.kills
    assert storm.count["stopped"]


@pytest.mark.soak
async def test_three_writers_of_one_conversation_through_a_thousand_disconnects_and_a_hundred_kills(
    tmp_path: Path,
) -> None:
    manners = Manners(pause_s=0.15, back_s=0.2, doings=FLIGHTY)
    plan = Plan(seed=4, rooms=1, guests=8, kills=100, disconnects=1_000, life_s=(0.2, 1.5), manners=manners)
    storm = await weathered(tmp_path, plan)
    assert storm.kills >= 100
    assert storm.disconnects >= 1_000
