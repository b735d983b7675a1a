"""How many bytes a token has, as far as hosts have told."""

import pytest

from torpor.turn.calibration import MODELS_MAX, Calibration


def test_a_model_that_nobody_heard_of_has_four_bytes_a_token() -> None:
    assert Calibration().bytes_per_token("m") == 4.0


def test_the_first_report_is_believed_and_later_ones_move_it() -> None:
    calibration = Calibration()
    calibration.learn("m", size_bytes=300, tokens=100)
    assert calibration.bytes_per_token("m") == 3.0
    calibration.learn("m", size_bytes=500, tokens=100)
    assert calibration.bytes_per_token("m") == 3.5
    assert calibration.bytes_per_token("other") == 4.0


def test_it_comes_to_agree_with_a_host_that_keeps_saying_the_same() -> None:
    calibration = Calibration()
    for size_bytes in (100_000, *[2_700] * 30):
        calibration.learn("m", size_bytes=size_bytes, tokens=1_000)
    assert calibration.bytes_per_token("m") == pytest.approx(2.7, rel=0.01)


@pytest.mark.parametrize(("size_bytes", "tokens", "ratio"), [(1, 1_000, 1.0), (1_000_000, 1, 12.0)])
def test_a_report_beyond_belief_is_bounded(size_bytes: int, tokens: int, ratio: float) -> None:
    calibration = Calibration()
    calibration.learn("m", size_bytes=size_bytes, tokens=tokens)
    assert calibration.bytes_per_token("m") == ratio


@pytest.mark.parametrize(("size_bytes", "tokens"), [(100, 0), (0, 100)])
def test_a_report_without_a_count_teaches_nothing(size_bytes: int, tokens: int) -> None:
    calibration = Calibration()
    calibration.learn("m", size_bytes=size_bytes, tokens=tokens)
    assert repr(calibration) == "<Calibration models=0>"


def test_only_so_many_models_are_remembered_and_the_silent_ones_go_first() -> None:
    calibration = Calibration()
    for number in range(MODELS_MAX):
        calibration.learn(f"m{number}", size_bytes=200, tokens=100)
    calibration.learn("m0", size_bytes=200, tokens=100)
    calibration.learn("new", size_bytes=200, tokens=100)
    assert [calibration.bytes_per_token(model) for model in ("m0", "m1", "new")] == [2.0, 4.0, 2.0]
    assert repr(calibration) == f"<Calibration models={MODELS_MAX}>"
