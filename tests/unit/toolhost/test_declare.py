from typing import Any

import pytest

import torpor
from torpor import NeverHappened, ToolContext, tool
from torpor.errors import ConfigError
from torpor.records.terms import Effect
from torpor.toolhost.declare import Runs, Tool


@tool
async def pay(patient: str, amount: int = 1) -> str:
    """Pay.

    Args:
        patient: Who pays.
    """
    return f"{patient} paid {amount}"


def test_an_undeclared_effect_is_a_write() -> None:
    assert pay.effect is Effect.WRITE
    assert not pay.accepts_key
    assert pay.deadline_s is None
    assert pay.result_cap_bytes is None


def test_a_declaration_overrides_every_default() -> None:
    @tool(effect="read", deadline_s=5, accepts_key=True, result_cap_bytes=2048, name="list-patients")
    def patients() -> list[str]:
        """List."""
        return []

    assert isinstance(patients, Tool)
    assert patients.name == "list-patients"
    assert patients.effect is Effect.READ
    assert (patients.deadline_s, patients.accepts_key, patients.result_cap_bytes) == (5, True, 2048)


def test_the_docstring_is_what_the_model_reads() -> None:
    assert pay.description == "Pay."
    assert pay.parameters.schema["properties"]["patient"]["description"] == "Who pays."


async def test_a_tool_is_called_like_its_function() -> None:
    assert await pay("Ada", amount=3) == "Ada paid 3"
    assert repr(pay) == "<Tool pay effect=write>"


def test_a_probe_takes_some_of_the_parameters_and_stays_a_function() -> None:
    @tool
    async def record(patient: str, amount: int) -> str:
        """Record."""
        return ""

    @record.probe
    async def recorded(amount: int, context: ToolContext) -> str | NeverHappened | None:
        return None

    assert record.probe_routine is not None
    assert record.probe_routine.names == ("amount",)
    assert record.probe_routine.context_name == "context"
    assert callable(recorded)


def test_a_probe_that_asks_for_what_the_tool_does_not_take_is_an_error() -> None:
    @tool
    async def record(patient: str) -> str:
        """Record."""
        return ""

    with pytest.raises(ConfigError, match="probe is \\['receipt'\\], expected parameters among patient"):

        @record.probe
        async def recorded(receipt: str) -> None:
            return None


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"name": "list.patients"}, "name is 'list.patients'"),
        ({"name": "x" * 65}, "expected a match of"),
        ({"name": ""}, "name is ''"),
        ({"effect": "append"}, "effect is 'append', expected read or write"),
        ({"deadline_s": 0}, "deadline_s is 0, expected seconds above 0"),
        ({"deadline_s": float("inf")}, "deadline_s is inf"),
        ({"deadline_s": float("nan")}, "deadline_s is nan"),
        ({"result_cap_bytes": 10}, "result_cap_bytes is 10, expected at least 1024 bytes"),
        ({"runs": "loop"}, "runs is 'loop', expected thread or process"),
    ],
)
def test_a_declaration_out_of_bounds_is_an_error(declared: dict[str, Any], expected: str) -> None:
    def function() -> str:
        """Do."""
        return ""

    with pytest.raises(ConfigError) as caught:
        tool(**declared)(function)
    assert expected in str(caught.value)


@pytest.mark.parametrize(("declared", "runs"), [({}, Runs.THREAD), ({"runs": "process"}, Runs.PROCESS)])
def test_a_plain_function_runs_in_a_thread_or_where_it_says(declared: dict[str, Any], runs: Runs) -> None:
    @tool(**declared)
    def compute() -> str:
        """Compute."""
        return ""

    assert compute.runs is runs


def test_an_async_function_runs_on_the_loop_and_nowhere_else() -> None:
    assert pay.runs is Runs.LOOP
    with pytest.raises(ConfigError, match="runs is 'process', expected a plain function, since an async one runs on"):

        @tool(runs="process")
        async def compute() -> str:
            """Compute."""
            return ""


def test_a_tool_that_says_nothing_of_itself_is_an_error() -> None:
    with pytest.raises(ConfigError, match="docstring is None, expected words that tell a model when to call it"):

        @tool
        def silent() -> str:
            return ""


def test_tool_authors_find_their_names_in_the_package() -> None:
    assert set(torpor.__all__) <= set(dir(torpor))
    assert all(getattr(torpor, name) is not None for name in torpor.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'agent'"):
        torpor.agent  # noqa: B018
