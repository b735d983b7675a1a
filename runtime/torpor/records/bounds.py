"""Ranges of numbers; of those that people configure, a value outside is refused when it is read."""

from typing import Annotated, Final, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
"""Of things of which there must be one."""
Amount: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""Of things of which there may be none."""
Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
"""A time that passes."""
Pause: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
"""A time that may be nothing."""
Rate: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
"""Things in a second."""
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A part of a whole."""
Score: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
"""How well something fits."""
Place: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
"""In a file, or where it ends: bytes before it. All readers of JSON can count so far."""
RowCount: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
"""Rows that a client asks for at once."""
LookBack: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=50)]
"""Exchanges that a message may have quoted beside it."""
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
"""Of TCP; 0 lets the system choose."""
MOMENT_MAX_US: Final = 253_402_300_799_999_999
"""The last moment of the year 9999, UTC, in microseconds: calendars end there."""
NUMBER_MAX: Final = 2**63 - 1
"""Stores hold 64 bits."""
