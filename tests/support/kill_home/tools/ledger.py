"""Tools that keep a book of what they did: a line before they begin, one for the effect, one when they end.

The book outlives the process and belongs to nobody's database, so it tells what really happened to the world. A line
of it names the idempotency key of the call and the run, of which a call has several when it is made again.
"""

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Annotated

import anyio
import msgspec

from torpor import Finding, NeverHappened, ToolContext, tool

HOME = Path(__file__).parent.parent
BOOK = HOME / "book.jsonl"
RELEASED = HOME / "released"
Amount = Annotated[int, msgspec.Meta(ge=1)]


def _write(what: str, name: str, context: ToolContext, run: str) -> None:
    line = {"what": what, "tool": name, "key": context.idempotency_key, "run": run, "path": context.key.path}
    book = os.open(BOOK, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(book, b"\n" + json.dumps(line).encode() + b"\n")  # a kill may have cut the line before this one
        os.fsync(book)
    finally:
        os.close(book)


def _run_that_acted(key: str) -> str:
    """The run under ``key`` that had its effect; empty when none had."""
    if not BOOK.exists():
        return ""
    for text in BOOK.read_bytes().splitlines():
        with contextlib.suppress(ValueError):  # of one that a kill cut short, or that another call is writing
            line = json.loads(text)
            if line["what"] == "effect" and line["key"] == key:
                return str(line["run"])
    return ""


def _begin(name: str, context: ToolContext) -> str:
    run = f"r{time.time_ns()}-{os.getpid()}-{context.call_id}"
    _write("started", name, context, run)
    return run


def _pay(name: str, context: ToolContext, *, amount: int) -> str:
    run = _begin(name, context)
    _write("effect", name, context, run)
    _write("ended", name, context, run)
    return f"paid {amount} run={run}"


@tool(effect="read")
def look_up(context: ToolContext, what: str) -> str:
    """Look something up."""
    run = _begin("look_up", context)
    context.report(f"looking for {what}")
    _write("ended", "look_up", context, run)
    return f"found {what} run={run}"


@tool(effect="read")
def dig_out(context: ToolContext) -> str:
    """Dig out more than a result can hold."""
    run = _begin("dig_out", context)
    _write("ended", "dig_out", context, run)
    return f"run={run}\n" + "".join(f"row {number} of {run}\n" for number in range(1500))


@tool(effect="read")
async def track(context: ToolContext) -> str:
    """Track down what a sub-agent may answer with."""
    run = _begin("track", context)
    assert context.collector is not None, "only sub-agents track"
    await context.collector.found(Finding(id="trail", title="A trail", locator="here", excerpt=f"run={run}"))
    _write("ended", "track", context, run)
    return f"found trail run={run}"


@tool(accepts_key=True)
def pay_keyed(context: ToolContext, amount: Amount) -> str:
    """Pay; the same key pays once."""
    run = _begin("pay_keyed", context)
    if acted := _run_that_acted(context.idempotency_key):
        _write("ended", "pay_keyed", context, run)
        return f"paid {amount} before, by {acted}, run={run}"
    _write("effect", "pay_keyed", context, run)
    _write("ended", "pay_keyed", context, run)
    return f"paid {amount} run={run}"


@tool
def pay_probed(context: ToolContext, amount: Amount) -> str:
    """Pay; whoever asks afterwards is told whether it happened."""
    return _pay("pay_probed", context, amount=amount)


@pay_probed.probe
def probe_pay(context: ToolContext, amount: Amount) -> str | NeverHappened:
    """What became of a payment."""
    acted = _run_that_acted(context.idempotency_key)
    return f"paid {amount} run={acted}" if acted else NeverHappened()


@tool
def pay_blindly(context: ToolContext, amount: Amount) -> str:
    """Pay; nobody can tell afterwards."""
    return _pay("pay_blindly", context, amount=amount)


@tool
async def pay_slowly(context: ToolContext, amount: Amount, mark: str) -> str:
    """Pay once somebody puts the mark into the folder of what is released."""
    run = _begin("pay_slowly", context)
    context.report("waiting")
    while not (RELEASED / mark).exists() and not (RELEASED / "everything").exists():  # noqa: ASYNC110 - another process
        await anyio.sleep(0.005)
    _write("effect", "pay_slowly", context, run)
    _write("ended", "pay_slowly", context, run)
    return f"paid {amount} run={run}"


@tool(effect="read")
def gossip() -> str:
    """Tell what is said."""
    return "nothing"
