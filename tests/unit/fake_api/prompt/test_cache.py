"""Cache reads and writes, as usage reports them."""

from typing import Any

import pytest

from tests.unit.fake_api.parts import HELLO, assistant, mark, request, tool, user
from torpor_fake_api.models import MODELS, ModelFacts
from torpor_fake_api.prompt import cache as cache_module
from torpor_fake_api.prompt.cache import CacheUse, PromptCache
from torpor_fake_api.prompt.rendering import segments, total

TOY = MODELS["toy-4k"]
SYSTEM = [{"type": "text", "text": "Be brief. " * 20}]
MARKED_SYSTEM = [SYSTEM[0] | mark()]


def text(number: int) -> dict[str, Any]:
    return {"type": "text", "text": f"part {number}"}


class Asking:
    """Requests to one cache, one after the other, at a time that the test sets."""

    def __init__(self) -> None:
        self.cache = PromptCache()
        self.now_s = 0.0

    def ask(self, body: dict[str, Any], *, model: ModelFacts = TOY) -> CacheUse:
        found = segments(body, model=model, is_dropped=lambda block: False)
        use = self.cache.look(found, mark=body.get("cache_control"), model=model, now_s=self.now_s)
        assert use.total == total(found), "every token is read, written or neither"
        self.cache.keep(use, now_s=self.now_s)
        return use


@pytest.fixture
def host() -> Asking:
    return Asking()


def test_without_a_mark_nothing_is_cached(host: Asking) -> None:
    body = request(system=SYSTEM)

    assert [host.ask(body).uncached for _ in range(2)] == [host.ask(body).total] * 2


def test_what_one_request_wrote_the_next_one_reads(host: Asking) -> None:
    first = host.ask(request(user(HELLO), system=MARKED_SYSTEM))
    second = host.ask(request(user(text(2)), system=MARKED_SYSTEM))

    assert (first.read, first.written_5m) == (0, first.total - first.uncached)
    assert (second.read, second.written_5m) == (first.written_5m, 0)


def test_a_moving_mark_reads_the_conversation_so_far_and_writes_what_is_new(host: Asking) -> None:
    first = host.ask(request(user(HELLO | mark()), system=SYSTEM))
    second = host.ask(request(user(HELLO), assistant(HELLO), user(text(1) | mark()), system=SYSTEM))

    assert second.read == first.written_5m == first.total
    assert second.written_5m == second.total - first.total
    assert second.uncached == 0


def test_the_mark_of_the_request_stands_for_one_on_its_last_block(host: Asking) -> None:
    automatic = request(user(HELLO), system=SYSTEM, cache_control={"type": "ephemeral", "ttl": "1h"})

    assert host.ask(automatic).written_1h == host.ask(request(user(HELLO), system=SYSTEM)).total
    assert host.ask(request(user(HELLO | mark("1h")), system=SYSTEM)).read > 0


def test_an_explicit_mark_on_the_last_block_wins_over_the_requests(host: Asking) -> None:
    use = host.ask(request(user(HELLO | mark()), system=SYSTEM, cache_control={"type": "ephemeral"}))

    assert (use.written_5m, use.written_1h) == (use.total, 0)


@pytest.mark.parametrize(
    "other",
    [
        {"system": [{"type": "text", "text": "Be brief! " * 20} | mark()]},
        {"tools": [tool(description="Another.")]},
        {"tools": [tool(), tool(name="other")]},
    ],
)
def test_any_change_before_the_mark_misses(host: Asking, other: dict[str, Any]) -> None:
    host.ask(request(system=MARKED_SYSTEM))

    assert host.ask(request(**({"system": MARKED_SYSTEM} | other))).read == 0


def test_json_in_another_order_misses(host: Asking) -> None:
    host.ask(request(system=MARKED_SYSTEM))
    shuffled = dict(reversed(tool().items()))

    assert host.ask(request(system=MARKED_SYSTEM, tools=[shuffled])).read == 0


def test_another_choice_of_tools_keeps_the_system_and_misses_the_messages(host: Asking) -> None:
    marked = (user(HELLO | mark()),)
    first = host.ask(request(*marked, system=MARKED_SYSTEM))
    second = host.ask(request(*marked, system=MARKED_SYSTEM, tool_choice={"type": "any"}))

    assert 0 < second.read < first.written_5m


def test_models_do_not_share_a_cache(host: Asking) -> None:
    host.ask(request(system=MARKED_SYSTEM))

    assert host.ask(request(system=MARKED_SYSTEM), model=MODELS["toy-4k-newest"]).read == 0


def test_a_prefix_below_the_minimum_is_not_cached_and_not_refused(host: Asking) -> None:
    use = host.ask(request(system=MARKED_SYSTEM), model=MODELS["claude-sonnet-4-6"])

    assert (use.written_5m, use.uncached) == (0, use.total)


@pytest.mark.parametrize(("between", "is_found"), [(19, True), (20, False)])
def test_a_mark_looks_back_over_twenty_blocks(host: Asking, between: int, is_found: bool) -> None:
    host.ask(request(user(HELLO | mark()), system=SYSTEM))
    more = [text(number) for number in range(between)]
    more[-1] = more[-1] | mark()

    assert (host.ask(request(user(HELLO, *more), system=SYSTEM)).read > 0) is is_found


@pytest.mark.parametrize(("ttl", "lives_s"), [("5m", 300), ("1h", 3600)])
def test_an_entry_lives_from_its_last_use(host: Asking, ttl: str, lives_s: int) -> None:
    body = request(system=[SYSTEM[0] | mark(ttl)])
    host.ask(body)

    host.now_s += lives_s - 1
    assert host.ask(body).read > 0
    host.now_s += lives_s - 1
    assert host.ask(body).read > 0
    host.now_s += lives_s
    assert host.ask(body).read == 0


def test_a_shorter_mark_does_not_cut_the_life_of_an_hour(host: Asking) -> None:
    host.ask(request(system=[SYSTEM[0] | mark("1h")]))
    host.ask(request(system=MARKED_SYSTEM))
    host.now_s += 3599

    assert host.ask(request(system=MARKED_SYSTEM)).read > 0


def test_each_stretch_is_written_for_the_life_of_its_mark(host: Asking) -> None:
    use = host.ask(request(user(HELLO | mark("5m")), system=[SYSTEM[0] | mark("1h")]))

    assert use.written_1h > use.written_5m > 0
    assert use.uncached == 0


def test_a_mark_inside_a_tool_result_counts_for_the_result(host: Asking) -> None:
    call = {"type": "tool_use", "id": "a", "name": "look_up", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [HELLO | mark()]}
    body = request(user(HELLO), assistant(call), user(result), system=SYSTEM)

    assert host.ask(body).written_5m == host.ask(body).total
    unmarked = request(user(HELLO), assistant(call), user(result | {"content": [HELLO]} | mark()), system=SYSTEM)
    assert host.ask(unmarked).read == host.ask(body).total


def test_entries_that_ended_are_swept(host: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "ENTRIES_MAX", 1)
    host.ask(request(system=MARKED_SYSTEM))
    host.now_s += 301
    host.ask(request(user(HELLO | mark()), system=SYSTEM))

    assert repr(host.cache) == "<PromptCache entries=1>"
