"""How many connections there is room for."""

import pytest
from structlog.testing import capture_logs

from torpor.gateway.intake import Intake
from torpor.gateway.options import GatewayOptions


def test_with_descriptors_enough_the_options_stand() -> None:
    with capture_logs() as logs:
        intake = Intake(GatewayOptions(connections_max=500, backlog=100), descriptors=20_000, used=30)

    assert (intake.connections_max, intake.backlog) == (500, 100)
    assert intake.sockets_max > 500
    assert logs == []


@pytest.mark.parametrize("descriptors", [32, 64, 256, 1024, 4096])
def test_what_does_not_fit_is_lowered_and_said(descriptors: int) -> None:
    with capture_logs() as logs:
        intake = Intake(GatewayOptions(), descriptors=descriptors, used=10)

    assert 0 < intake.connections_max < intake.sockets_max
    assert 10 + intake.sockets_max + intake.backlog < descriptors
    assert [line["event"] for line in logs] == ["gateway.connections_lowered"]


def test_beyond_the_bound_nobody_is_taken_until_somebody_leaves() -> None:
    intake = Intake(GatewayOptions(), descriptors=64, used=10)
    assert all(intake.enter() for _ in range(intake.sockets_max))
    assert not intake.enter()
    intake.leave()
    assert intake.enter()
    assert intake.turned_away == 1
