"""Whose code it was."""

from types import CodeType
from typing import Any

import pytest

from torpor.watchdog.contract import Suspect
from torpor.watchdog.judge import Blocked, Cause, Resumed, Suspended
from torpor.watchdog.naming import bystanders, culprits, names, passed
from torpor.watchdog.stacks import EMPTY, Stack

CODE = compile("1", "tools/pay.py", "eval")
OTHER = compile("2", "tools/other.py", "eval")
HELD = Blocked(since_s=100.0, until_s=104.0, cause=Cause.INTERPRETER_HELD, cpu_s=3.0, is_over=True)
BUSY = Blocked(since_s=100.0, until_s=104.0, cause=Cause.BUSY, cpu_s=0.0, is_over=False)


def a_run(name: str, *, thread: int = 0, began_s: float = 99.0, code: CodeType = CODE, **ended: Any) -> Suspect:
    return Suspect(name=name, code=code, thread_id=thread, native_id=thread, began_s=began_s, cpu_began_s=1.0, **ended)


def told(blocked: Blocked, *runs: Suspect, stack: Stack = EMPTY, cpu_s: float | None = None) -> tuple[str, ...]:
    return names(culprits(blocked, runs, stack=stack, cpu_of_s=lambda _: cpu_s, long_s=0.5))


def seen(*codes: CodeType) -> Stack:
    return Stack(frames=(), codes=frozenset(codes), files=frozenset(code.co_filename for code in codes))


def test_tool_in_the_stack_of_the_loop_is_named_and_one_that_waits_is_not() -> None:
    assert told(BUSY, a_run("pay"), a_run("wait", code=OTHER), stack=seen(CODE)) == ("pay",)


def test_task_that_a_tool_began_is_known_by_its_file() -> None:
    task = compile("3", "tools/pay.py", "eval")
    assert told(BUSY, a_run("pay"), a_run("wait", code=OTHER), stack=seen(task)) == ("pay",)


def test_nobody_is_named_when_the_engine_itself_is_busy() -> None:
    assert told(BUSY, a_run("wait"), a_run("compute", thread=7), stack=seen(OTHER)) == ()


def test_tool_on_the_loop_that_ended_with_the_gap_is_named() -> None:
    assert told(BUSY, a_run("pay", ended_s=103.5), a_run("quick", ended_s=100.5)) == ("pay",)


def test_each_of_several_that_held_the_loop_one_after_the_other_is_named() -> None:
    gap = Resumed(since_s=100.0, until_s=104.0)
    runs = [
        a_run("first", began_s=100.0, ended_s=101.5),
        a_run("second", began_s=101.5, ended_s=102.5),
        a_run("third", began_s=102.5, ended_s=104.0),
        a_run("quick", began_s=102.5, ended_s=102.6),
        a_run("waited", began_s=99.0, ended_s=103.9),
        a_run("in a thread", thread=7, began_s=101.0, ended_s=103.0),
        a_run("goes on", began_s=103.0),
    ]
    assert names(passed(gap, runs, long_s=0.5)) == ("first", "second", "third")
    assert told(BUSY, *runs) == ("first", "second", "third", "waited")


def test_thread_that_used_the_processor_holds_the_interpreter_and_others_only_waited_for_it() -> None:
    computed = a_run("compute", thread=7, ended_s=104.0, cpu_used_s=2.0)
    waited = a_run("wait", thread=8, ended_s=104.0, cpu_used_s=0.01)
    assert told(HELD, computed, waited) == ("compute",)


@pytest.mark.parametrize(("cpu_s", "expected"), [(3.5, ("compute",)), (1.1, ()), (None, ("compute",))])
def test_thread_that_still_runs_is_judged_by_what_it_used_so_far(
    cpu_s: float | None, expected: tuple[str, ...]
) -> None:
    assert told(HELD, a_run("compute", thread=7), cpu_s=cpu_s) == expected


def test_thread_that_began_late_in_the_gap_is_not_named_where_nothing_else_is_known() -> None:
    assert told(HELD, a_run("late", thread=7, began_s=103.0)) == ()


def test_one_that_computes_in_a_thread_does_not_keep_the_loop_busy() -> None:
    assert told(BUSY, a_run("compute", thread=7), cpu_s=5.0) == ()


def test_those_under_way_in_a_suspended_process_are_bystanders() -> None:
    suspended = Suspended(since_s=100.0, until_s=104.0, cpu_s=0.0)
    runs = [a_run("compute", thread=7), a_run("brief", thread=8, ended_s=100.1), a_run("on the loop")]
    assert names(bystanders(suspended, runs)) == ("compute",)
