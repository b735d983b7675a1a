"""Payments, kept in a ledger that survives whatever happens to the conversation that made them.

The ledger is an SQLite file, ``.torpor/clinic-ledger.sqlite3`` in this home unless ``CLINIC_LEDGER`` names another. A
payment is kept under the idempotency key of its call, so a call that is repeated finds its payment instead of making a
second one, and a call that was interrupted can be asked about.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import anyio
import anyio.to_thread
import msgspec

from torpor import NeverHappened, ToolContext, ToolRefused, tool

CASH_MAX: Final = 1_000
TERMINAL_S: Final = 6
"""How long the card terminal, which is made up as well, takes to answer."""

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS payments (
    receipt INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    patient TEXT NOT NULL,
    cents INTEGER NOT NULL,
    method TEXT NOT NULL,
    at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
)
"""

_INSERT: Final = """
INSERT INTO payments (key, owner, patient, cents, method) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET key = excluded.key
RETURNING receipt, patient, cents, method
"""


class Payment(NamedTuple):
    """One row of the ledger."""

    receipt: int
    patient: str
    cents: int
    method: str


@tool(effect="write", accepts_key=True)
async def record_payment(
    patient: Annotated[str, msgspec.Meta(min_length=1, max_length=100)],
    amount: Annotated[float, msgspec.Meta(gt=0, le=10_000)],
    context: ToolContext,
    method: Literal["cash", "card"] = "cash",
) -> str:
    """Record a payment in the clinic's ledger and give its receipt.

    Args:
        patient: Who pays.
        amount: In euros.
        method: A card payment waits for the terminal first.
    """
    if method == "cash" and amount > CASH_MAX:
        raise ToolRefused(f"cash is taken up to {CASH_MAX} euros only, a card payment has no such limit")
    if method == "card":
        for left_s in range(TERMINAL_S, 0, -1):
            context.report(f"waiting for the card terminal, {left_s} s")
            await anyio.sleep(1)
    owner = f"{context.tenant}/{context.owner}"
    payment = await anyio.to_thread.run_sync(_record, context.idempotency_key, owner, patient, amount, method)
    return _receipt(payment)


@record_payment.probe
async def recorded_payment(context: ToolContext) -> str | NeverHappened:
    """What is in the ledger is the truth; a call that left nothing there never took effect."""
    payment = await anyio.to_thread.run_sync(_find, context.idempotency_key)
    return NeverHappened() if payment is None else _receipt(payment)


def _record(key: str, owner: str, patient: str, amount: float, method: str) -> Payment:
    """The payment of ``key``; the one that is there already, if any."""
    with closing(_ledger()) as ledger, ledger:
        return Payment(*ledger.execute(_INSERT, (key, owner, patient, round(amount * 100), method)).fetchone())


def _find(key: str) -> Payment | None:
    with closing(_ledger()) as ledger:
        row = ledger.execute("SELECT receipt, patient, cents, method FROM payments WHERE key = ?", (key,)).fetchone()
        return None if row is None else Payment(*row)


def _ledger() -> sqlite3.Connection:
    home = Path(__file__).parent.parent
    path = Path(os.environ.get("CLINIC_LEDGER") or home / ".torpor" / "clinic-ledger.sqlite3")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # like all that lies in a data folder
    ledger = sqlite3.connect(path)
    ledger.execute("PRAGMA synchronous = FULL")  # a receipt is given for what a power cut cannot take back
    ledger.execute(_TABLE)
    return ledger


def _receipt(payment: Payment) -> str:
    return f"Receipt {payment.receipt}: {payment.cents / 100:.2f} euros by {payment.method} from {payment.patient}."
