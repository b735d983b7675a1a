"""What a person is told of a model's faults."""

import pytest

from torpor.cli.faults import asked_again, one_line, remedy
from torpor.provider_errors import ProviderError
from torpor.records.events import ModelFailedEvent


def failed(*, retry_s: float, next_model: str = "", code: str = "model_overloaded") -> ModelFailedEvent:
    return ModelFailedEvent(
        event=1,
        at_us=1_000_000,
        turn=1,
        call="1-1-1",
        code=code,
        detail="",
        retry_at_us=int((1 + retry_s) * 1_000_000) if retry_s else 0,
        next_model=next_model,
    )


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (failed(retry_s=0), ""),
        (failed(retry_s=0.4), "the model failed, model_overloaded; it is asked again at once"),
        (failed(retry_s=12), "the model failed, model_overloaded; it is asked again in 12 s"),
        (
            failed(retry_s=12, code="attachments_unavailable"),
            "the files of the conversation could not be read, attachments_unavailable; tried again in 12 s",
        ),
        (
            failed(retry_s=2, next_model="other"),
            "the model failed, model_overloaded; it is asked again in 2 s, then of other",
        ),
    ],
)
def test_a_call_that_is_asked_again_is_told_with_its_pause(event: ModelFailedEvent, told: str) -> None:
    assert asked_again(event) == told


@pytest.mark.parametrize("fault", ProviderError.__subclasses__(), ids=lambda fault: str(fault.code))
def test_every_fault_of_a_model_has_a_remedy(fault: type[ProviderError]) -> None:
    assert remedy(fault.code, program="torpor")


@pytest.mark.parametrize("code", ["model_key_refused", "model_billing_refused", "model_unknown"])
def test_what_the_operator_must_mend_names_the_doctor(code: str) -> None:
    assert "`bin/torpor doctor`" in remedy(code, program="bin/torpor")


def test_a_fault_that_nobody_knows_has_none() -> None:
    assert remedy("odd", program="torpor") == ""


def test_words_of_a_host_become_one_line_without_control_characters() -> None:
    told = one_line("413\r\n<b>\n\x1b[31m" + "x" * 1_000)

    assert told.startswith("413 <b> ␛[31mx")
    assert len(told) == 500
    assert told.endswith("…")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<html>\n<head><title>413 Too Large</title></head>\n<body><hr>nginx</body></html>", "413 Too Large nginx"),
        ("<!DOCTYPE html><style>b { color: red }</style><p>Log&nbsp;in &amp; pay<!-- no -->", "Log in & pay"),
        ("<html><body>cut in a ta<", "cut in a ta"),
        ("<html><script>never ended", ""),
        ("x < y and y > z &amp; so on", "x < y and y > z &amp; so on"),
    ],
)
def test_of_a_page_only_its_words_are_told(page: str, words: str) -> None:
    assert one_line(page) == words


@pytest.mark.parametrize("code", ["context_too_long", "fixed_context_too_large"])
def test_a_request_that_cannot_fit_is_told_with_what_can_be_done(code: str) -> None:
    assert remedy(code, program="torpor")
