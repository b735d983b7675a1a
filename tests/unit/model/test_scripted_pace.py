import anyio
import pytest
from trio.testing import MockClock

from tests.support.models import Heard, a_request, user
from torpor.conversation.view import View
from torpor.model.scripted import Say, ScriptedModel


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


async def test_paced_text_comes_word_by_word_in_its_time() -> None:
    at: list[tuple[float, str]] = []
    begun = anyio.current_time()

    class Timed(Heard):
        def text(self, piece: str) -> None:
            at.append((round(anyio.current_time() - begun, 3), piece))

    reply = await ScriptedModel(lambda _: [Say("\nGood day,\n\nAda", 10)]).reply(a_request(user(View(), "hi")), Timed())
    assert at == [(0.0, "\n"), (0.1, "Good "), (0.6, "day,\n\n"), (1.2, "Ada")]
    assert bytes(reply.blocks[0]) == b'{"text":"\\nGood day,\\n\\nAda","type":"text"}'
