"""All that counts and traces in one server, put together.

Above: the composition root, which puts it around the ports of an engine and names what reports. An engine without it
works the same.
"""

from torpor.clock import Clock
from torpor.errors import InvariantBroken
from torpor.model.contract import Model
from torpor.operations import metrics_table as table
from torpor.operations.metrics import Metrics
from torpor.operations.metrics_ports import CountedModel, CountedToolbox, ModelNumbers, ToolNumbers
from torpor.operations.metrics_store import CountedCore, CountedStore
from torpor.operations.metrics_turns import TurnNumbers
from torpor.operations.tracing import Tracing
from torpor.store.contract import Store
from torpor.store.requests import CommitCore
from torpor.toolhost.contract import Toolbox


class Instruments:
    """Counts outermost, so that it sees what the engine sees; spans within."""

    def __init__(self, *, clock: Clock, tracing: Tracing) -> None:
        self.metrics = Metrics()
        self._clock = clock
        self._tracing = tracing
        self._models = ModelNumbers(self.metrics, clock=clock)
        self._tools = ToolNumbers(self.metrics, clock=clock)
        self._commit_seconds = self.metrics.spread(table.COMMIT_SECONDS)
        self._core: CountedCore | None = None
        self.observer = tracing.turns(TurnNumbers(self.metrics, tools=self._tools.known))

    def model(self, model: Model) -> Model:
        return CountedModel(self._tracing.model(model), self._models)

    def toolbox(self, toolbox: Toolbox) -> Toolbox:
        return CountedToolbox(self._tracing.toolbox(toolbox), self._tools)

    def store(self, store: Store) -> Store:
        return CountedStore.around(self._tracing.store(store), self._commit_seconds, clock=self._clock)

    def core(self, core: CommitCore) -> CommitCore:
        """Of the one store that the server writes."""
        if self._core is not None:
            raise InvariantBroken("a server has one store to write, and a second one was named")
        self._core = CountedCore(core, self.metrics, clock=self._clock)
        return self._core

    def can_be_written(self) -> bool:
        """Whether the store takes writes, as far as the last ones tell."""
        return self._core is None or self._core.can_be_written()
