"""Signatures say where a block comes from and notice every change."""

from typing import Any

import pytest

from torpor_fake_api.signing import Claim, Signer

SIGNER = Signer()
CLAIM = Claim("some-model", "msg_1", 2)


def thought(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def test_a_signature_tells_model_message_and_place() -> None:
    assert SIGNER.claim(thought("so", SIGNER.sign("so", CLAIM))) == CLAIM


def test_redacted_thinking_is_signed_by_its_data() -> None:
    assert SIGNER.claim({"type": "redacted_thinking", "data": SIGNER.sign("", CLAIM)}) == CLAIM


@pytest.mark.parametrize(
    "block",
    [
        thought("so!", SIGNER.sign("so", CLAIM)),
        thought("so", SIGNER.sign("so", CLAIM)[:-4]),
        thought("so", Signer(b"another key").sign("so", CLAIM)),
        thought("so", "no base64!"),
        thought("so", "c2hvcnQ="),
        {"type": "thinking", "thinking": "so"},
        {"type": "redacted_thinking", "data": SIGNER.sign("so", CLAIM)},
    ],
)
def test_an_altered_or_foreign_signature_claims_nothing(block: dict[str, Any]) -> None:
    assert SIGNER.claim(block) is None


def test_the_same_text_elsewhere_has_another_signature() -> None:
    signatures = {SIGNER.sign("so", claim) for claim in (CLAIM, CLAIM._replace(ordinal=0), CLAIM._replace(model="x"))}

    assert len(signatures) == 3
