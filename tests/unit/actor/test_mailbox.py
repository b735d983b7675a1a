"""The bounded queue of commands, and the answers on their way back."""

import anyio
import anyio.lowlevel
import pytest

from torpor.actor.mailbox import Mailbox, PendingReply
from torpor.errors import Busy, NothingToCancel
from torpor.records.commands import Wake

DEADLINE_S = 10


def pending() -> PendingReply:
    return PendingReply(Wake())


def mailbox(*replies: PendingReply, capacity: int = 2) -> Mailbox:
    box = Mailbox(capacity=capacity, retry_after_s=0.5)
    for reply in replies:
        box.offer(reply)
    return box


async def test_everything_that_waits_is_received_in_order_at_once() -> None:
    first, second = pending(), pending()
    box = mailbox(first, second)
    assert len(box) == 2
    assert await box.receive() == [first, second]
    assert len(box) == 0


async def test_a_receiver_waits_for_a_command() -> None:
    box, reply = mailbox(), pending()
    received: list[list[PendingReply]] = []

    async def receive() -> None:
        received.append(await box.receive())

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive)
            await anyio.lowlevel.checkpoint()
            box.offer(reply)
    assert received == [[reply]]


async def test_a_receiver_is_woken_without_a_command() -> None:
    box = mailbox()
    box.wake()
    with anyio.fail_after(DEADLINE_S):
        assert await box.receive() == []


async def test_one_wake_is_one_look() -> None:
    box = mailbox()
    box.wake()
    await box.receive()
    with anyio.move_on_after(0) as scope:
        await box.receive()
    assert scope.cancelled_caught


def test_a_full_mailbox_says_how_many_wait_and_when_to_come_back() -> None:
    box = mailbox(pending(), pending())
    with pytest.raises(Busy, match="2 waiting") as caught:
        box.offer(pending())
    assert (caught.value.waiting, caught.value.retry_after_s) == (2, 0.5)
    assert len(box) == 2


def test_the_engines_own_command_finds_room_in_a_full_mailbox() -> None:
    box, own = mailbox(pending(), pending()), pending()
    box.offer_last(own)
    assert box.take()[-1] is own


def test_a_mailbox_in_which_something_waits_does_not_close() -> None:
    box = mailbox(pending())
    assert not box.close_if_empty()
    assert not box.is_closed
    box.take()
    assert box.close_if_empty()
    assert box.is_closed


async def test_an_answer_reaches_everybody_who_waits_before_or_after_it() -> None:
    reply = pending()
    answers: list[object] = []

    async def wait() -> None:
        answers.append(await reply.wait())

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            reply.resolve(7)
        await wait()
    assert answers == [7, 7, 7]
    assert reply.is_done


async def test_only_the_first_answer_counts() -> None:
    reply = pending()
    reply.fail(NothingToCancel())
    reply.resolve(True)
    with pytest.raises(NothingToCancel):
        await reply.wait()


async def test_who_stops_waiting_for_an_answer_takes_it_from_nobody() -> None:
    reply = pending()
    with anyio.move_on_after(0):
        await reply.wait()
    reply.resolve(True)
    assert await reply.wait() is True


async def test_whoever_listens_is_told_once_and_at_once_where_the_answer_is_there() -> None:
    reply, told = pending(), list[object]()
    reply.when_done(lambda: told.append(reply.result()))
    reply.when_done(lambda: told.append("too"))
    assert told == []
    reply.resolve(3)
    reply.resolve(4)
    reply.when_done(lambda: told.append("late"))

    assert told == [3, "too", "late"]


async def test_the_result_of_a_failure_is_its_error() -> None:
    reply = pending()
    reply.fail(Busy("mailbox", waiting=1, bound="x", retry_after_s=1.0))

    with pytest.raises(Busy):
        reply.result()
