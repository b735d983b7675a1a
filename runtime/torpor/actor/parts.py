"""What every actor of a process shares."""

from collections.abc import Callable

import msgspec

from torpor.actor.commit import Journal
from torpor.actor.creations import Creations
from torpor.actor.options import ActorOptions
from torpor.bus.contract import Bus
from torpor.clock import Clock, IdSource
from torpor.conversation.retry import RetryOptions
from torpor.conversation.steps import StepOptions
from torpor.conversation.summary import CompactionOptions
from torpor.records.ids import ConversationKey
from torpor.store.contract import Store
from torpor.turn.agents import Agents
from torpor.turn.calibration import Calibration
from torpor.turn.contract import UNOBSERVED, Observer, Spawns
from torpor.turn.options import TurnOptions
from torpor.turn.places import FairPlaces
from torpor.turn.prepare import Surroundings


class ActorParts(msgspec.Struct, frozen=True, kw_only=True):
    """One for a process."""

    store: Store
    bus: Bus
    clock: Clock
    ids: IdSource
    agents: Agents
    places: FairPlaces
    """For concurrent model calls."""
    steps: StepOptions
    retry: RetryOptions = RetryOptions()
    turn: TurnOptions
    compaction: CompactionOptions = CompactionOptions()
    actor: ActorOptions
    surroundings: Surroundings = msgspec.field(default_factory=Surroundings)
    calibration: Calibration = msgspec.field(default_factory=Calibration)
    creations: Creations = msgspec.field(default_factory=Creations)
    jobs_added: Callable[[], None] = lambda: None
    """Is told when an append with jobs is durable."""
    spawns: "Callable[[ConversationKey, Journal, ActorParts], Spawns] | None" = None
    """Looks after the sub-agents of one conversation; None where there are none."""
    observer: Observer = UNOBSERVED
