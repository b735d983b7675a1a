import msgspec
import pytest

from tests.support.tools import ADA, DictBlobs, a_context, a_registry
from torpor.records.ids import ConversationKey
from torpor.records.terms import Outcome
from torpor.toolhost.contract import ToolResult
from torpor.toolhost.engine_tools import ENGINE_TOOL_NAMES

A_UMLAUT = "\u00e4"
TEXT = A_UMLAUT * 3000


async def read(blobs: DictBlobs, key: ConversationKey = ADA, **arguments: object) -> ToolResult:
    box = a_registry(blobs=blobs, result_cap_bytes=2048).toolbox()
    return await box.call("read_result", msgspec.Raw(msgspec.json.encode(arguments)), a_context(key))


@pytest.fixture
def blobs() -> DictBlobs:
    return DictBlobs()


@pytest.fixture
async def handle(blobs: DictBlobs) -> str:
    return await blobs.put(ADA, TEXT.encode())


def test_the_engine_always_offers_its_tools() -> None:
    assert {spec.name for spec in a_registry().toolbox().specs()} == ENGINE_TOOL_NAMES


async def test_a_page_says_where_it_stands_and_where_to_go_on(blobs: DictBlobs, handle: str) -> None:
    result = await read(blobs, handle=handle, offset=10, size=20)
    assert result.text == f"[bytes 10 to 30, continue with offset=30]\n{A_UMLAUT * 10}"


async def test_a_page_that_begins_within_a_character_begins_after_it(blobs: DictBlobs, handle: str) -> None:
    assert (await read(blobs, handle=handle, offset=11, size=5)).text.startswith("[bytes 12 to 16, continue with")


async def test_a_page_holds_no_more_than_one_result_can(blobs: DictBlobs, handle: str) -> None:
    result = await read(blobs, handle=handle, size=10**9)
    assert 1024 < len(result.text.encode()) <= 2048
    assert result.handle == ""


async def test_the_last_page_says_so(blobs: DictBlobs, handle: str) -> None:
    result = await read(blobs, handle=handle, offset=5990, size=10)
    assert result.text == f"[bytes 5990 to 6000, the end]\n{A_UMLAUT * 5}"


@pytest.mark.parametrize("offset", [6000, 6001, 2**53])
async def test_reading_past_the_end_fails(blobs: DictBlobs, handle: str, offset: int) -> None:
    result = await read(blobs, handle=handle, offset=offset)
    assert (result.outcome, result.text) == (
        Outcome.FAILED,
        f"the result ends before byte {offset}, expected a smaller offset",
    )


async def test_a_result_of_another_owner_is_no_different_from_one_that_never_was(blobs: DictBlobs, handle: str) -> None:
    never = "0" * 64
    foreign = await read(blobs, ConversationKey("clinic", "eve", "c1"), handle=handle)
    other_tenant = await read(blobs, ConversationKey("other", "ada", "c1"), handle=handle)
    unknown = await read(blobs, handle=never)
    assert foreign.outcome is unknown.outcome is Outcome.FAILED
    assert foreign.text == other_tenant.text == unknown.text.replace(never, handle)


@pytest.mark.parametrize("handle", ["", "../../secret", "0" * 63, "F" * 64, "\0"])
async def test_what_is_no_handle_never_reaches_the_blobs(handle: str) -> None:
    class Untouchable(DictBlobs):
        async def get(self, *args: object, **kwargs: object) -> bytes | None:
            raise AssertionError("asked")

    result = await read(Untouchable(), handle=handle)
    assert result.text.startswith("no result ")
    assert "expected a handle that a shortened result named" in result.text


async def test_the_same_owner_reads_on_in_another_conversation(blobs: DictBlobs, handle: str) -> None:
    result = await read(blobs, ConversationKey("clinic", "ada", "c2"), handle=handle)
    assert result.outcome is Outcome.SUCCEEDED
