"""The Python client against the real gateway, over good lines, bad lines and none."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import anyio
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from tests.support.cutting_proxy import cutting_proxy
from tests.support.gateway_house import House, gateway_house
from tests.support.gateway_line import token_for
from tests.support.gateway_world import Durable, replied
from torpor.client.connection import FINAL_CLOSE_CODES
from torpor.client.failures import ClientClosed, ConnectionLost, RequestRefused, ServerRefused
from torpor.client.items import AnyItem, DeltaItem, EventItem, ReloadItem, ResumedItem
from torpor.client.options import ClientOptions
from torpor.client.torpor_client import TorporClient
from torpor.client.watch import Watch
from torpor.errors import BadFrame, Busy, Rejected, Unauthenticated
from torpor.gateway.close_reasons import CloseReason
from torpor.records.commands import CancelTurn, Hibernate, SendMessage, TellContext, Wake
from torpor.records.context import SelectedRecord, WorkingContext
from torpor.records.events import MessageReceivedEvent
from torpor.records.frames import Cursor
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import MessageReceived, TurnFinished, TurnPrepared
from torpor.records.terms import Offer, WhenBusy
from torpor.store.job_contract import JobCounts
from torpor.supervisor.contract import LiveStatus

KEY = ConversationKey("default", "alice", "c1")
RESUMED = {"frame": "resumed", "conversation": "c1", "epoch": 1, "head": 3, "status": {"state": "rest"}}
QUICK = ClientOptions(backoff_s=0.01, backoff_max_s=0.05, close_deadline_s=0.5)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with gateway_house() as opened:
        yield opened


def client_of(house: House, *, port: int | None = None, subject: str = "alice", **more: Any) -> TorporClient:
    token = more.pop("token", None) or token_for(subject, clock=house.clock, scopes=more.pop("scopes", ("chat",)))
    url = f"ws://127.0.0.1:{port or house.gateway.port}"
    return TorporClient(url, token, **{"options": QUICK, "jitter": Random(0).random, **more})


async def next_of(watch: Watch, kind: type[Any]) -> Any:
    """The next item of this kind; others are passed over."""
    with anyio.fail_after(10):
        async for item in watch:
            if isinstance(item, kind):
                return item
    raise AssertionError("the watch ended")


async def events_of(watch: Watch, *, up_to: int) -> list[int]:
    numbers: list[int] = []
    with anyio.fail_after(30):
        while not numbers or numbers[-1] < up_to:
            numbers.append((await next_of(watch, EventItem)).event.event)
    return numbers


async def test_a_message_is_sent_and_its_events_come(house: House) -> None:
    async with client_of(house) as client, client.watch("c1") as watch:
        reload = await next_of(watch, ReloadItem)
        receipt = await client.send("c1", "hello", message_id="m1", when_busy=WhenBusy.STEER, agent="helper")
        item = await next_of(watch, EventItem)

    assert (reload.head, reload.status.state) == (0, "new")
    assert (receipt.message_id, receipt.event, receipt.at_us) == ("m1", 1, house.world.at_us)
    assert isinstance(item.event, MessageReceivedEvent)
    assert (item.conversation, item.epoch, item.event.text) == ("c1", 1, "hello")
    ((key, command),) = house.world.posted
    assert key == KEY
    assert isinstance(command, SendMessage)
    assert (command.when_busy, command.agent) == (WhenBusy.STEER, "helper")


async def test_an_offer_is_taken_up_with_or_without_words(house: House) -> None:
    async with client_of(house) as client:
        await client.send("c1", "", resume=Offer.RETRY)
        await client.send("c1", "and be brief", resume=Offer.CONTINUE)

    commands = [command for _, command in house.world.posted]
    assert [(command.text, command.resume) for command in commands if isinstance(command, SendMessage)] == [
        ("", Offer.RETRY),
        ("and be brief", Offer.CONTINUE),
    ]


async def test_messages_without_an_id_get_one_each(house: House) -> None:
    async with client_of(house) as client:
        receipts = [await client.send("c1", "hello") for _ in range(3)]

    assert len({receipt.message_id for receipt in receipts}) == 3


async def test_who_one_is_comes_with_the_connection(house: House) -> None:
    said: list[str | None] = []
    async with client_of(house, on_connection=lambda w: said.append(w and w.owner)) as client:
        with anyio.fail_after(10):
            assert (await client.connected()).owner == "alice"
        assert client.welcome is not None

    assert said == ["alice", None]


async def test_a_cancel_is_done_or_refused(house: House) -> None:
    house.world.converse(KEY, turns=1)
    async with client_of(house) as client:
        with pytest.raises(RequestRefused) as refusal:
            await client.cancel("c1")
        house.world.live[KEY] = LiveStatus(state="running", turn=2)
        await client.cancel("c1")

    assert refusal.value.code == "nothing_to_cancel"
    assert house.world.posted[-1][1] == CancelTurn(principal="alice", reason="client")


async def test_a_context_is_told_and_told_again_where_the_answer_was_lost(house: House) -> None:
    context = WorkingContext(record=SelectedRecord(type="room", id="7", text="blue"))
    async with cutting_proxy(house.gateway.port) as proxy, client_of(house, port=proxy.port) as client:
        await client.update_context("c1", context, agent="helper")
        house.world.durable = Durable()
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.update_context, "c1", WorkingContext())
                while len(house.world.posted) < 2:  # noqa: ASYNC110 - the world has no event for it
                    await anyio.sleep(0.01)
                proxy.cut()
                while len(house.world.posted) < 3:  # noqa: ASYNC110 - the same
                    await anyio.sleep(0.01)
                house.world.durable.set()

    again = TellContext(principal="alice", context=WorkingContext())
    assert [command for _, command in house.world.posted] == [
        TellContext(principal="alice", context=context, agent="helper"),
        again,
        again,
    ]


async def test_what_lies_before_a_reload_is_read_back() -> None:
    async with gateway_house() as house:
        house.world.converse(KEY, turns=3)
        async with client_of(house) as client:
            latest = await client.history("c1", limit=5)
            before = await client.history("c1", before=latest[0]["event"])

    assert [row["event"] for row in (*before, *latest)] == list(range(1, 13))


async def test_operators_list_inspect_hibernate_and_thaw() -> None:
    async with gateway_house(list_rows_max=3) as house:
        for number in range(7):
            house.world.converse(ConversationKey("default", "alice", f"c{number}"), turns=2)
        async with client_of(house, subject="ops", scopes=("operator",)) as client:
            rows = await client.list()
            records = await client.inspect("alice/c1")
            later = await client.inspect("alice/c1", seq=6)
            await client.hibernate("alice/c1", deadline_s=2)
            await client.thaw("default/alice/c1")
            with pytest.raises(RequestRefused, match="no conversation"):
                await client.thaw("alice/none")

    assert [row["conversation"] for row in rows] == [f"c{number}" for number in range(7)]
    assert [row["seq"] for row in records] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [row["seq"] for row in later] == [7, 8]
    assert [command for _, command in house.world.posted] == [Hibernate(deadline_s=2.0), Wake()]


async def test_operators_list_count_retry_and_drop_jobs() -> None:
    async with gateway_house(list_rows_max=3) as house:
        for number in range(7):
            house.world.jobs.file(KEY, f"j_{number}")
        house.world.jobs.counts = JobCounts(waiting=7)
        async with client_of(house, subject="ops", scopes=("operator",)) as client:
            rows = await client.jobs()
            counts = await client.job_counts()
            await client.retry_job("default/alice/c1/j_1")
            await client.drop_job("alice/c1/j_2")
            with pytest.raises(RequestRefused, match="no job 'default/alice/c1/j_2' here"):
                await client.drop_job("alice/c1/j_2")

    assert [row["id"] for row in rows] == [f"j_{number}" for number in range(7)]
    assert counts == {"waiting": 7, "due": 0, "running": 0, "dead": 0, "oldest_due_us": None}
    assert house.world.jobs.redone == ["j_1"]
    assert len(house.world.jobs.by_place) == 6


async def test_a_full_mailbox_is_asked_again_under_the_same_id(house: House) -> None:
    house.world.refusals += [Busy("mailbox", waiting=64, bound="actor.mailbox_capacity", retry_after_s=0.01)] * 3
    async with client_of(house) as client:
        receipt = await client.send("c1", "hello", message_id="m1")

    assert receipt.message_id == "m1"
    assert client.statistics().resent == 3
    assert house.world.head(KEY) == 1


async def test_a_refusal_that_will_not_change_is_raised(house: House) -> None:
    house.world.refusals.append(Rejected(turn=3))
    async with client_of(house) as client:
        with pytest.raises(RequestRefused) as refusal:
            await client.send("c1", "hello")

    assert refusal.value.code == "rejected"


async def test_half_an_emoji_is_sent_and_cleaned_by_the_server(house: House) -> None:
    async with client_of(house) as client:
        await client.send("c1", "half \ud83d emoji")

    ((_, command),) = house.world.posted
    assert isinstance(command, SendMessage)
    assert (command.text, command.cleaned) == ("half \ufffd emoji", 1)


async def test_a_conversation_is_watched_once_by_one_client(house: House) -> None:
    async with client_of(house) as client:
        async with client.watch("c1") as watch:
            await next_of(watch, ReloadItem)
            with pytest.raises(BadFrame, match="watched by this client already"):
                client.watch("c1")
        async with client.watch("c1") as again:
            await next_of(again, ReloadItem)


async def test_a_watch_that_the_server_refuses_raises(house: House) -> None:
    async with client_of(house) as client, client.watch("bob/c1") as watch:
        with pytest.raises(RequestRefused) as refusal:
            await next_of(watch, ReloadItem)

    assert refusal.value.code == "unknown_conversation"


async def test_a_reader_who_takes_nothing_for_long_gets_every_event_afterwards(house: House) -> None:
    options = ClientOptions(items_max=16)
    async with client_of(house, options=options) as client, client.watch("c1") as watch:
        await next_of(watch, ReloadItem)
        for number in range(50):
            house.world.converse(KEY, turns=2)
            await client.send("c2", f"message {number}")

        assert await events_of(watch, up_to=400) == list(range(1, 401))
    assert client.statistics().connections == 1


async def test_a_restart_of_the_server_is_survived_with_what_was_under_way() -> None:
    async with gateway_house() as first:
        port = first.gateway.port
        first.world.converse(KEY, turns=2)
        first.world.durable = Durable()
        async with client_of(first) as client, client.watch("c1", Cursor(event=3)) as watch:
            assert (await next_of(watch, ResumedItem)).head == 8
            assert await events_of(watch, up_to=8) == [4, 5, 6, 7, 8]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: client.send("c1", "never answered", message_id="m9"))
                assert await events_of(watch, up_to=9) == [9]
                await first.gateway.stop(CloseReason.RESTARTING)
                async with gateway_house(port=port) as second:
                    second.world.journals = first.world.journals
                    second.world.receipts = first.world.receipts
                    resumed = await next_of(watch, ResumedItem)
                    await client.send("c1", "after", message_id="m10")
                    assert await events_of(watch, up_to=10) == [10]

    assert resumed.head == 9
    assert second.world.head(KEY) == 10, "a message that was told again is one message"
    assert client.statistics().connections == 2


async def test_a_server_that_is_not_there_yet_is_waited_for(house: House) -> None:
    port = house.gateway.port
    await house.gateway.stop()
    async with client_of(house) as client:
        with anyio.move_on_after(0.1) as waiting:
            await client.connected()
        assert waiting.cancelled_caught
        async with gateway_house(port=port):
            with anyio.fail_after(10):
                await client.connected()


async def test_a_connection_that_hangs_is_replaced(house: House) -> None:
    options = ClientOptions(ping_interval_s=0.05, ping_deadline_s=0.1, backoff_s=0.01, close_deadline_s=0.1)
    async with (
        cutting_proxy(house.gateway.port) as proxy,
        client_of(house, port=proxy.port, options=options) as client,
        client.watch("c1") as watch,
    ):
        await next_of(watch, ReloadItem)
        proxy.hang()
        house.world.converse(KEY, turns=1)
        with anyio.fail_after(10):
            while client.welcome is not None:  # noqa: ASYNC110 - the client tells it by callback only
                await anyio.sleep(0.01)
        proxy.recover()

        assert await events_of(watch, up_to=4) == [1, 2, 3, 4]


async def test_a_cancel_on_a_lost_connection_is_not_repeated(house: House) -> None:
    house.world.converse(KEY, turns=1)
    house.world.live[KEY] = LiveStatus(state="running", turn=2)
    house.world.durable = Durable()
    async with cutting_proxy(house.gateway.port) as proxy, client_of(house, port=proxy.port) as client:
        await client.connected()
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                with pytest.raises(ConnectionLost):
                    await client.cancel("c1")

            tasks.start_soon(cancel)
            with anyio.fail_after(10):
                while not house.world.posted:  # noqa: ASYNC110 - the world has no event for it
                    await anyio.sleep(0.01)
                proxy.cut()
        await client.connected()

    assert len(house.world.posted) == 1


@pytest.mark.parametrize(
    "wait_for",
    [
        lambda client: client.send("c1", "hello"),
        lambda client: anext(client.watch("c1")),
        lambda client: client.connected(),
        lambda client: client.list(),
    ],
    ids=["send", "watch", "connected", "list"],
)
async def test_a_token_that_is_refused_ends_everything(
    wait_for: Callable[[TorporClient], Awaitable[Any]], house: House
) -> None:
    token = token_for("alice", clock=house.clock, lifetime_s=-100)
    async with client_of(house, token=token) as client:
        with anyio.fail_after(10), pytest.raises(Unauthenticated):
            await wait_for(client)
        with pytest.raises(Unauthenticated):
            await client.send("c1", "again")


async def test_what_is_no_torpor_is_given_up(house: House) -> None:
    for url in (f"http://127.0.0.1:{house.gateway.port}", f"ws://127.0.0.1:{house.gateway.port}/other"):
        async with TorporClient(url, "token", options=QUICK) as client:
            with anyio.fail_after(10), pytest.raises(ServerRefused):
                await client.connected()


@asynccontextmanager
async def stranger(*frames: str) -> AsyncIterator[int]:
    """A server that speaks our sub-protocol and says these frames to everybody; yields its port."""

    async def talk(connection: ServerConnection) -> None:
        for frame in frames:
            await connection.send(frame)
        await connection.wait_closed()

    async with serve(talk, "127.0.0.1", 0, subprotocols=[Subprotocol("torpor.v1")]) as server:
        yield next(iter(server.sockets)).getsockname()[1]


async def test_what_a_newer_server_says_is_ignored_where_it_is_not_known() -> None:
    new_event = '{"type":"proposal.ready","event":2,"at_us":1,"proposal":{"id":"p1"}}'
    old_event = '{"type":"turn.finished","event":3,"at_us":1,"later":[1,2]}'
    frames = (
        '{"frame":"welcome","principal":"a","tenant":"t","owner":"a","scopes":["chat"],"later":1}',
        '{"frame":"weather","x":{}}',
        '{"frame":"reload","conversation":"c1","epoch":1,"head":1,"status":{"state":"dreaming"},"events":['
        + new_event.replace('"event":2', '"event":1')
        + "]}",
        '{"frame":"event","conversation":"c1","epoch":1,"event":' + new_event + "}",
        '{"frame":"event","conversation":"c1","epoch":1,"event":' + old_event + "}",
    )
    async with stranger(*frames) as port, TorporClient(f"ws://127.0.0.1:{port}", "token", options=QUICK) as client:
        watch = client.watch("c1")
        reload = await next_of(watch, ReloadItem)

        assert (reload.status.state, reload.events) == ("dreaming", ())
        assert (await next_of(watch, EventItem)).event.event == 3
        assert client.statistics().unreadable == 1


@pytest.mark.parametrize(
    ("code", "error"), [(4401, Unauthenticated), (4413, ServerRefused)], ids=["unauthenticated", "held too much"]
)
async def test_a_close_for_good_is_taken_for_good(code: int, error: type[Exception]) -> None:
    async def talk(connection: ServerConnection) -> None:
        await connection.close(code, "because")

    async with serve(talk, "127.0.0.1", 0, subprotocols=[Subprotocol("torpor.v1")]) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with TorporClient(f"ws://127.0.0.1:{port}", "token", options=QUICK) as client:
            with anyio.fail_after(10), pytest.raises(error, match="because"):
                await client.connected()


@pytest.mark.parametrize(("status", "error"), [(401, Unauthenticated), (403, ServerRefused)])
async def test_a_refusal_at_the_door_is_taken_for_good_unless_it_passes(
    status: int, error: type[Exception], house: House
) -> None:
    answers = [503, 429, status]

    async def talk(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async with serve(
        talk, "127.0.0.1", 0, process_request=lambda connection, _request: connection.respond(answers.pop(0), "no\n")
    ) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with client_of(house, port=port) as client:
            with anyio.fail_after(10), pytest.raises(error):
                await client.connected()

    assert answers == []


async def test_a_server_of_another_protocol_is_given_up() -> None:
    async def talk(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async with serve(talk, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with TorporClient(f"ws://127.0.0.1:{port}", "token", options=QUICK) as client:
            with anyio.fail_after(10), pytest.raises(ServerRefused, match=r"does not speak torpor\.v1"):
                await client.connected()


async def test_a_server_that_takes_nothing_is_left_for_another_connection(house: House) -> None:
    options = ClientOptions(send_deadline_s=0.2, backoff_s=0.01, close_deadline_s=0.1)
    async with cutting_proxy(house.gateway.port) as proxy, client_of(house, port=proxy.port, options=options) as client:
        await client.connected()
        proxy.hang()
        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(partial(client.send, "c1", "x" * 250_000, message_id=f"m{number}"))
            with anyio.fail_after(20):
                while client.welcome is not None:  # noqa: ASYNC110 - the client tells it by callback only
                    await anyio.sleep(0.01)
            proxy.recover()

    assert len(house.world.receipts) == 40


async def test_an_event_that_was_left_out_is_asked_for_at_once() -> None:
    asked: list[Any] = []

    async def talk(connection: ServerConnection) -> None:
        asked.append(json.loads(await connection.recv()))
        for number in (1, 3):
            event = {"type": "turn.finished", "event": number, "at_us": 1}
            if number == 1:
                await connection.send(json.dumps(RESUMED))
            await connection.send(json.dumps({"frame": "event", "conversation": "c1", "epoch": 1, "event": event}))
        asked.append(json.loads(await connection.recv()))
        await connection.wait_closed()
        asked.append(connection.close_code)

    async with serve(talk, "127.0.0.1", 0, subprotocols=[Subprotocol("torpor.v1")]) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with TorporClient(f"ws://127.0.0.1:{port}", "token", options=QUICK) as client:
            await next_of(client.watch("c1", Cursor(event=0)), EventItem)
            with anyio.fail_after(10):
                while len(asked) < 2:  # noqa: ASYNC110 - the stranger has no event for it
                    await anyio.sleep(0.01)

    assert asked[1]["subscription"] == {"conversation": "c1", "cursor": {"epoch": 1, "event": 1}}
    assert asked[2] == 1000, "the client left without a word"


async def test_an_error_in_the_block_comes_out_as_it_is(house: House) -> None:
    async def fail() -> None:
        async with client_of(house) as client:
            await client.connected()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()


async def test_closing_the_client_ends_whoever_waits(house: House) -> None:
    house.world.durable = Durable()
    errors: list[type[Exception]] = []

    async def wait_for(client: TorporClient) -> None:
        try:
            await client.send("c1", "hello")
        except ClientClosed as exc:
            errors.append(type(exc))

    async with anyio.create_task_group() as tasks, client_of(house) as client:
        await client.connected()
        tasks.start_soon(wait_for, client)
        await anyio.wait_all_tasks_blocked()

    assert errors == [ClientClosed]
    with pytest.raises(ClientClosed):
        await client.send("c1", "too late")


async def test_leaving_the_loop_of_a_watch_needs_no_care(house: House) -> None:
    house.world.converse(KEY, turns=1)
    async with client_of(house) as client:
        async for item in client.watch("c1"):
            assert isinstance(item, ReloadItem)
            break


async def test_a_cancelled_block_ends_at_once(house: House) -> None:
    with anyio.fail_after(10), anyio.CancelScope() as scope:
        async with client_of(house) as client:
            await client.connected()
            scope.cancel()
            await anyio.sleep_forever()


def test_the_final_close_codes_are_those_of_the_gateway() -> None:
    assert {reason.code for reason in CloseReason if not reason.resume} == FINAL_CLOSE_CODES - {1009}


def answer_each_message(house: House) -> None:
    """Every message gets a turn with a streamed reply, a little later."""

    def on_message(key: ConversationKey, message: MessageReceived) -> None:
        turn = house.world.head(key)
        call = f"call-{message.message_id}"
        words = [f"{message.message_id}:{number} " for number in range(20)]
        house.world.commit(key, TurnPrepared(messages=(message.message_id,), turn=turn))
        for number, word in enumerate(words):
            house.world.say(key, call, offset=sum(map(len, words[:number])), text=word)
        house.world.commit(key, replied(call, "".join(words), turn=turn), TurnFinished(turn=turn))

    house.world.on_message = on_message


@pytest.mark.parametrize("seed", range(4))
async def test_over_lines_that_are_cut_at_random_no_event_is_lost_or_repeated_and_each_message_is_one(
    seed: int, house: House
) -> None:
    random = Random(seed)
    answer_each_message(house)
    watched: dict[str, list[AnyItem]] = {"c1": [], "c2": []}
    async with (
        cutting_proxy(house.gateway.port, random=random, bytes_max=6_000) as proxy,
        client_of(house, port=proxy.port, jitter=random.random) as client,
        anyio.create_task_group() as tasks,
    ):

        async def watch(conversation: str) -> None:
            async with client.watch(conversation, Cursor(event=0)) as items:
                async for item in items:
                    watched[conversation].append(item)
                    if isinstance(item, EventItem) and item.event.event == 4 * 40:
                        return

        async def converse(conversation: str) -> None:
            for number in range(40):
                await client.send(conversation, f"question {number}", message_id=f"{conversation}-m{number}")

        with anyio.fail_after(60):
            async with anyio.create_task_group() as conversing:
                for conversation in watched:
                    tasks.start_soon(watch, conversation)
                    conversing.start_soon(converse, conversation)

    assert proxy.cuts > 5, "the line was too good to prove anything"
    assert client.statistics().connections > 5
    for conversation, items in watched.items():
        journal = house.world.journals[ConversationKey("default", "alice", conversation)]
        sent = [record.message_id for record in journal if isinstance(record, MessageReceived)]
        assert sent == [MessageId(f"{conversation}-m{number}") for number in range(40)]
        events = [item.event for item in items if isinstance(item, EventItem)]
        assert [event.event for event in events] == list(range(1, 161))
        assert not [item for item in items if isinstance(item, ReloadItem)]
        texts: dict[str, str] = {}
        for item in items:
            if isinstance(item, DeltaItem):
                assert item.offset == len(texts.get(item.call, "")), "a delta left a hole or was repeated"
                texts[item.call] = texts.get(item.call, "") + item.text
