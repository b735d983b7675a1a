"""Real servers that are wrong in every way; cases MCP-01 to MCP-06 over the wire."""

import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import msgspec
from structlog.testing import capture_logs

from tests.support.request_rules import violations
from tests.support.tools import DictBlobs, a_context
from torpor.records.terms import Outcome
from torpor.toolhost.contract import Toolbox, ToolResult
from torpor.toolhost.declare import tool
from torpor.toolhost.mcp.elsewhere import McpTools
from torpor.toolhost.mcp.loading import open_session
from torpor.toolhost.mcp.options import McpOptions, McpServer, Reference
from torpor.toolhost.mcp.servers import Link, McpServers
from torpor.toolhost.mcp.values import Values
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry

RAW = Path(__file__).parents[2] / "support" / "mcp_raw_server.py"
CONTEXT = a_context()
KEY = "k-1234"
BAD = {"string-root", "any-of-root", "required-inside", "ref-to-missing", "huge", "no-schema", "list-schema", "?"}
BAD |= {"deep", "half-a-character"}
RESULT = '{"jsonrpc":"2.0","id":ID,"result":{"content":[%s]}}'
LINES = {
    RESULT
    % r'{"type":"text","text":"half \ud83d of \ud83d\ude00"}': "half \N{REPLACEMENT CHARACTER} of \N{GRINNING FACE}",
    RESULT % '{"type":"text","text":"good"},{"type":"martian"},7,{"type":"text"}': "good\n[martian: not shown]\n"
    "[something: not shown]\n[text: not shown]",
    RESULT % '],"structuredContent":{"a":NaN,"b":[-Infinity,1.5]},"content":[': '{"a":"NaN","b":["-Infinity",1.5]}',
    RESULT % f'],"structuredContent":{{"a":{"1" * 5_000}}},"content":[': '{"a":"[left out: too large for JSON]"}',
    RESULT % '],"_meta":5,"structuredContent":[1],"content":[': '{"result":[1]}',
    RESULT % ("[" * 100_000): "its server answered what is no answer: recursion limit exceeded",
    RESULT % "\x01": "its server answered what is no answer: expected value",
    '{"jsonrpc":"2.0","id":ID,"error":{"code":"x","message":5}}': "it has not the shape of an answer",
}
"""What a program writes as its answer, and what is told of it."""

FORGOTTEN = [
    (404, {}),
    (404, {"code": -32_001, "message": "Session not found"}),
    (400, {"code": -32_000, "message": "Bad Request: No valid session ID provided"}),
]
"""How servers that were started again say that they know a session no more."""


@tool(effect="read")
async def prod__echo() -> str:
    """A tool of the home with the name of a server's."""
    return "the home's own"


def raw(*arguments: str, **more: object) -> McpServer:
    table = {"command": sys.executable, "args": (str(RAW), *arguments), "deadline_s": 20.0, **more}
    return msgspec.convert(table, McpServer)


class World:
    """Servers, and an agent's tools of them."""

    def __init__(self, servers: McpServers, registry: ToolRegistry) -> None:
        self.servers = servers
        own = [spec.name for spec in registry.toolbox().specs()]
        self.elsewhere = McpTools(servers, names=servers.servers, taken=own, toolbox_of=registry.lent_toolbox)

    async def toolbox(self, principal: str = "ada") -> Toolbox:
        await self.elsewhere.known(CONTEXT.key, principal)
        lent = self.elsewhere.lent(CONTEXT.key, principal)
        assert lent is not None
        return lent.toolbox

    async def call(self, name: str, *, principal: str = "ada", arguments: bytes = b"{}") -> ToolResult:
        context = msgspec.structs.replace(CONTEXT, principal=principal)
        return await (await self.toolbox(principal)).call(name, msgspec.Raw(arguments), context)

    def pids(self) -> set[int]:
        """Of programs that run now, below this process."""
        listed = subprocess.run(["pgrep", "-f", str(RAW), "-P", str(os.getpid())], capture_output=True, check=False)
        return set(map(int, listed.stdout.split()))


@asynccontextmanager
async def world(home: Path, **tables: McpServer) -> AsyncIterator[World]:
    options = McpOptions(backoff_s=0.01, backoff_max_s=0.05, relist_pause_s=0.0, turn_wait_s=60.0)
    servers = McpServers(
        tables, home=home, values=Values(home, {}), open_=open_session, options=options, chance=lambda: 0.5
    )
    registry = ToolRegistry((prod__echo,), blobs=DictBlobs(), options=ToolOptions())
    with anyio.fail_after(120):
        async with registry.running(), servers.running():
            yield World(servers, registry)


@contextmanager
def listening(port: int = 0) -> Iterator[McpServer]:
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, str(RAW), str(port)]) as process:
        try:
            while True:
                with socket.socket() as asked:
                    if asked.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.01)
            yield msgspec.convert({"url": f"http://127.0.0.1:{port}/mcp", "deadlines_s": {"silent": 0.3}}, McpServer)
        finally:
            process.kill()


async def test_what_can_be_read_of_an_answer_is_told_and_what_cannot_ends_its_call(tmp_path: Path) -> None:
    async with world(tmp_path, pipes=raw(deadline_s=600.0)) as here:
        for line, told in LINES.items():
            result = await here.call("pipes__echo", arguments=msgspec.json.encode({"line": line}))
            assert told in result.text, line[:80]
            assert result.outcome is (Outcome.UNKNOWN if "answer" in told else Outcome.SUCCEEDED)
        assert (await here.call("pipes__echo")).text == "echo of nobody"
        assert here.servers.statistics().lost == {"pipes": 0}


async def test_mcp_01_a_call_that_gets_no_answer_ends(tmp_path: Path) -> None:
    with listening() as http:
        pipes = raw(deadlines_s={"silent": 0.3}, reads=["nonsense"], env={"SHOP_KEY": KEY})
        async with world(tmp_path, pipes=pipes, http=http) as here:
            for server in ("pipes", "http"):
                await here.servers.connection(here.servers.links([server], tenant="", principal="")[0]).known()
                silent = await here.call(f"{server}__silent")
                assert (silent.outcome, "within 0.3 s" in silent.text) == (Outcome.UNKNOWN, True)
                assert (await here.call(f"{server}__echo")).outcome is Outcome.SUCCEEDED
            with capture_logs() as told:
                gone = await here.call("pipes__exit")
                assert (await here.call("pipes__echo")).text == "echo of nobody"  # it is back
            (lost,) = (entry for entry in told if entry["event"] == "mcp.lost")
            assert lost["why"] == "its program ended with exit status 3"
            assert "printed" not in lost  # which may hold what was sent
            assert (gone.outcome, "may or may not" in gone.text) == (Outcome.UNKNOWN, True)
            garbled = await here.call("pipes__nonsense")
            assert (garbled.outcome, "what is no answer" in garbled.text) == (Outcome.FAILED, True)
            flooded = await here.call("pipes__garbage")
            assert flooded.outcome is Outcome.UNKNOWN
            broken = await here.call("http__garbage")  # HTTP 500
            assert (broken.outcome, "may or may not" in broken.text) == (Outcome.UNKNOWN, True)
            for said in FORGOTTEN:
                arguments = msgspec.json.encode({"forget": said})
                assert (await here.call("http__echo", arguments=arguments)).text == "echo of nobody"
                forgotten = await here.call("http__echo")
                assert (forgotten.outcome, "nothing was done" in forgotten.text) == (Outcome.NEVER_STARTED, True)
                assert (await here.call("http__echo")).text == "echo of nobody"  # in a session of its own
            before = here.servers.statistics().lost
            for server, number in itertools.product(("pipes", "http"), (-32_000, -32_001, -32_050)):
                error = {"refuse": {"code": number, "message": "the session of the shop is over"}}
                refused = await here.call(f"{server}__echo", arguments=msgspec.json.encode(error))
                assert (refused.outcome, f"is over (error {number})" in refused.text) == (Outcome.FAILED, True)
            assert here.servers.statistics().lost == before
            for server in ("pipes", "http"):
                huge = await here.call(f"{server}__long", arguments=b'{"size": 20000000}')
                assert (huge.outcome, "may or may not" in huge.text) == (Outcome.UNKNOWN, True)
                assert (await here.call(f"{server}__echo")).text == "echo of nobody"
            assert (await here.call("pipes__endless")).outcome is Outcome.UNKNOWN
            long = await here.call("pipes__long")
            assert (long.outcome, "it has run all the same" in long.text) == (Outcome.FAILED, True)
            assert here.servers.statistics().lost["pipes"] >= 2
            assert len(here.pids()) == 2
    assert here.pids() == set()


async def test_a_call_that_finds_nobody_listening_is_certainly_not_made(tmp_path: Path) -> None:
    with ExitStack() as first:
        http = first.enter_context(listening())
        async with world(tmp_path, http=http) as here:
            toolbox = await here.toolbox()
            assert (await here.call("http__echo")).outcome is Outcome.SUCCEEDED
            first.close()
            gone = await toolbox.call("http__echo", msgspec.Raw(b"{}"), CONTEXT)
            assert (gone.outcome, "nothing was done" in gone.text) == (Outcome.NEVER_STARTED, True)
            assert "nothing answers at its address" in gone.text
            connection = here.servers.connection(Link("http"))
            with listening(int(http.url.split(":")[2].partition("/")[0])):
                connection.want()
                while connection.generation < 2:
                    await connection.next_news()
                    connection.want()
                assert (await here.call("http__echo")).text == "echo of nobody"


async def test_mcp_02_stubborn_programs_are_closed_at_the_same_time(tmp_path: Path) -> None:
    child = tmp_path / "child"
    async with world(tmp_path, a=raw("--stubborn", "--child", str(child)), b=raw("--stubborn"), c=raw()) as here:
        for name in ("c", "a", "b"):
            assert (await here.call(f"{name}__echo")).outcome is Outcome.SUCCEEDED
        began_s = anyio.current_time()
    assert here.pids() == set()
    assert anyio.current_time() - began_s < 7.5, "one after the other they take 8 s at least"
    with anyio.fail_after(10):
        while runs(child.read_text()):  # noqa: ASYNC110 - it is nobody's child any more
            await anyio.sleep(0.01)


def runs(pid: str) -> bool:
    """Whether the process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_mcp_03_04_05_names_route_to_the_right_server(tmp_path: Path) -> None:
    long = "a" * 40
    async with world(tmp_path, prod=raw(), preprod=raw(env={"CREDENTIAL": "preprod"}), **{long: raw()}) as here:
        toolbox = await here.toolbox()
        names = [spec.name for spec in toolbox.specs()]
        assert len(set(names)) == len(names)
        assert all(len(name) <= 64 for name in names)
        assert "prod__echo" not in names  # a tool of the home has that name
        assert (await here.call("prod__catalog_get")).text == "catalog_get of nobody"
        assert (await here.call("preprod__catalog_get")).text == "catalog_get of preprod"
        (dotted,) = [name for name in names if name.startswith("prod__catalog_get_")]
        assert (await here.call(dotted)).text == "catalog.get of nobody"
        cut = [name for name in names if name.startswith(long)]
        assert len(cut) == len([name for name in names if name.startswith("preprod__")])


async def test_mcp_06_bad_schemas_stay_out_and_requests_stay_valid(tmp_path: Path) -> None:
    async with world(tmp_path, odd=raw()) as here:
        toolbox = await here.toolbox()
        (listing,) = [
            listing for _, listing in here.servers.listings(here.servers.links(["odd"], tenant="", principal=""))
        ]
        assert {rejected.title for rejected in listing.rejected} == BAD
        schemas = [
            {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
            for spec in toolbox.specs()
        ]
        messages = [{"role": "user", "content": "hi"}]
        assert violations({"model": "m", "max_tokens": 9, "tools": schemas, "messages": messages}) == []
        assert len(schemas) == 12
        await here.call("odd__change")
        while "odd__extra" not in {spec.name for spec in (await here.toolbox()).specs()}:
            await here.servers.connection(here.servers.links(["odd"], tenant="", principal="")[0]).next_news()


async def test_of_a_crowd_of_tools_the_first_are_looked_at_and_those_that_are_named(tmp_path: Path) -> None:
    async with world(tmp_path, all=raw("--crowd"), one=raw("--crowd", tools=["t1199"], reads=["t1100"])) as here:
        links = here.servers.links(["all", "one"], tenant="", principal="")
        for link in links:
            await here.servers.connection(link).known()
        (_, every), (_, one) = here.servers.listings(links)
        assert (len(every.tools), every.rejected[-1].why) == (64, "873 more are left out")
        assert ([tool.title for tool in one.tools], one.rejected, one.unmet) == (["t1199"], (), ())


async def test_each_user_is_served_with_their_own_credential(tmp_path: Path) -> None:
    for name in ("ada", "bob"):
        (tmp_path / name).write_text(name.upper())
    own = raw(credentials="{principal}", env={"CREDENTIAL": Reference(credential=True)})
    with listening() as http:
        bearer = {"Authorization": Reference(credential=True, prefix="Bearer ")}
        asked = msgspec.structs.replace(http, credentials="{principal}", headers=bearer)
        async with world(tmp_path, asked=asked) as here:
            assert (await here.call("asked__echo", principal="ada")).text == "echo of Bearer ADA"
            assert (await here.call("asked__echo", principal="bob")).text == "echo of Bearer BOB"
            elsewhere = b'{"elsewhere":"https://elsewhere.example/secret?key=secret"}'
            sent_on = await here.call("asked__echo", principal="bob", arguments=elsewhere)
            assert "sends on to elsewhere.example, which is not followed (HTTP 307)" in sent_on.text
            assert "secret" not in sent_on.text
            (tmp_path / "ada").write_text("NEW")
            renewed = b'{"accepted":"Bearer NEW"}'
            refused = await here.call("asked__echo", principal="ada", arguments=renewed)
            assert (refused.outcome, "who asks (HTTP 401)" in refused.text) == (Outcome.NEVER_STARTED, True)
            assert (await here.call("asked__echo", principal="ada", arguments=renewed)).text == "echo of Bearer NEW"
    async with world(tmp_path, own=own) as here:
        assert (await here.call("own__echo", principal="ada")).text == "echo of NEW"
        assert (await here.call("own__echo", principal="bob")).text == "echo of BOB"
        assert here.elsewhere.lent(CONTEXT.key, "eve") is None
        (tmp_path / "bob").write_text("")
        assert here.elsewhere.lent(CONTEXT.key, "bob") is None
        assert len(here.pids()) == 2
