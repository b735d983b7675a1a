"""A sink of the client that keeps what it is given."""

from torpor.client.items import AnyItem, DeltaItem, EventItem


class Bucket:
    """A sink with as much room as the test gives it."""

    def __init__(self, room: int = 10**9) -> None:
        self.room = room
        self.items: list[AnyItem] = []
        self.error: Exception | None = None

    def offer(self, item: AnyItem) -> bool:
        if len(self.items) >= self.room:
            return False
        self.items.append(item)
        return True

    def fail(self, error: Exception) -> None:
        self.error = error

    @property
    def numbers(self) -> list[int]:
        return [item.event.event for item in self.items if isinstance(item, EventItem)]

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, DeltaItem))
