"""How a turn ends: settled, told to the model, and on record before anybody hears of it.

Above: the interpreter, which finds that it ends, and the actor, which may want that. Below: the journal.
"""

from collections.abc import Callable

from torpor.conversation.state import ConversationState, TurnState
from torpor.errors import InvariantBroken
from torpor.records.blocks import Block
from torpor.records.journal import TurnCancelled, TurnFailed, TurnRefused
from torpor.turn import answers, notes
from torpor.turn.contract import Journal
from torpor.turn.tool_batch import settled_as_they_stand


class Endings:
    """Of the turns of one conversation, one after the other."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.stopping = ""
        """Why the turn is to end, once somebody wants that; empty while nobody does."""
        self._when_ended: list[Callable[[], None]] = []

    def stop(self, reason: str, *, ended: Callable[[], None] | None) -> None:
        """Somebody wants the turn to end; ``ended`` is called once its end is durable, whichever it is."""
        self.stopping = reason
        if ended is not None:
            self._when_ended.append(ended)

    def cut(self, reason: str = "", *, partial: tuple[Block, ...] = ()) -> None:
        """It was cancelled. Args: reason: empty for the one that was given."""
        turn, why = self._settled(), reason or self.stopping
        note = notes.reply_cut(why, had_text=bool(partial))
        self._journal.add(TurnCancelled(turn=turn.number, reason=why, partial=partial, note=note))
        self.ended()

    def fail(self, code: str, detail: str) -> None:
        """The engine cannot go on with it."""
        turn = self._settled()
        note = notes.turn_failed(code)
        offers = answers.offers_after(code)
        self._journal.add(TurnFailed(turn=turn.number, code=code, detail=detail, note=note, offers=offers))
        self.ended()

    def refuse(self) -> None:
        """The model refused to answer."""
        turn = self._settled()
        detail = f"{turn.model or 'the model'} refused to answer"
        self._journal.add(TurnRefused(turn=turn.number, detail=detail, note=notes.refused(turn.executed)))
        self.ended()

    def ended(self) -> None:
        """Its end is in the journal: whoever waits hears of it with the commit."""
        self.stopping = ""
        for ended in self._when_ended:
            self._journal.after_commit(ended)
        self._when_ended.clear()

    def _settled(self) -> TurnState:
        """The running turn with every call of it settled: a turn never ends with a question open."""
        turn = running_turn(self._journal.state)
        self._journal.add(*settled_as_they_stand(turn, why="the turn ended before its result was recorded"))
        return turn


def running_turn(state: ConversationState) -> TurnState:
    """Raises: InvariantBroken: there is none."""
    if state.turn is None:
        raise InvariantBroken("a step was performed outside a turn")
    return state.turn
