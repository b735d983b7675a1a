"""What is decided, as a value."""

from torpor.flags.contract import EVERYTHING_ON, Decided, Decision, FlagContext


def decision(key: str, *, value: bool = True, reason: str = "STATIC") -> Decision:
    return Decision(key=key, value=value, variant="default", reason=reason)


def test_what_nobody_declared_is_on() -> None:
    decided = Decided([decision("tool.pay", value=False), decision("memory")])

    assert not decided.is_on("tool.pay")
    assert decided.is_on("memory")
    assert decided.is_on("tool.look")
    assert EVERYTHING_ON.is_on("tool.pay")


def test_equal_decisions_are_equal_in_any_order() -> None:
    one, other = decision("memory"), decision("tool.pay", value=False)

    assert Decided([one, other]) == Decided([other, one])
    assert len({Decided([one, other]), Decided([other, one])}) == 1
    assert list(Decided([other, one]).decisions) == ["memory", "tool.pay"]


def test_another_value_or_reason_is_another_decision() -> None:
    alike = Decided([decision("memory")])

    assert alike != Decided([decision("memory", value=False)])
    assert alike != Decided([decision("memory", reason="ERROR")])
    assert alike != EVERYTHING_ON
    assert alike != "memory"


def test_percentages_are_drawn_by_tenant_and_owner() -> None:
    assert FlagContext(tenant="north", owner="ada", agent="clinic").targeting_key == "north/ada"
