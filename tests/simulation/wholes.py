"""Conversations as a whole, in a life: the real directory and the real forks over the life's ports."""

from typing import cast

import msgspec

from tests.simulation.files import SimUploads
from tests.simulation.life import Life
from tests.simulation.ports import SimBus, SimClock, SimStore
from tests.simulation.tools import Ledger, SimBlobs
from torpor.actor.parts import ActorParts
from torpor.bus.contract import Bus
from torpor.store.contract import Store
from torpor.supervisor.directory import StoredDirectory
from torpor.supervisor.forks import StoredForks
from torpor.supervisor.registry import Supervisor

CUT_WITHIN_S = 5.0
"""In which an actor ends that is cut off."""
_RECORDS_MAX = 2_000


class Wholes(msgspec.Struct, frozen=True):
    """What a life has beside its supervisor."""

    directory: StoredDirectory
    forks: StoredForks


def wholes_of(
    life: Life, *, supervisor: Supervisor, parts: ActorParts, store: SimStore, bus: SimBus, ledger: Ledger
) -> Wholes:
    """For one life; the directory is not running yet."""
    clock = SimClock(life)
    whole_store, whole_bus = cast("Store", store), cast("Bus", bus)
    directory = StoredDirectory(
        served=supervisor,
        store=whole_store,
        blobs=SimBlobs(ledger, life),
        bus=whole_bus,
        clock=clock,
        uploads=SimUploads(life.world),
        cancel_deadline_s=life.world.plan.cancel_grace_s + 1.0,
    )
    forks = StoredForks(
        served=supervisor,
        store=whole_store,
        bus=whole_bus,
        clock=clock,
        new_id=parts.ids.new_id,
        creations=parts.creations,
        records_max=_RECORDS_MAX,
        retry_after_s=0.0,
    )
    return Wholes(directory, forks)
