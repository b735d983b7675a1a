"""What a host said may be read by anybody once it is the text of an error."""

import base64

import pytest

from torpor.model.wording import DETAIL_CHARS_MAX, Wording, secrets_of_url

KEY = 'sk-ant+s/e"c&ret'
KNOWS = Wording(secrets=(KEY, ""))


@pytest.mark.parametrize(
    "echo",
    [
        KEY,
        KEY.upper(),
        "sk-ant%2Bs%2Fe%22c%26ret",
        "sk-ant+s/e&quot;c&amp;ret",
        'sk-ant+s/e\\"c&ret',
    ],
)
def test_a_key_that_a_host_repeats_is_hidden_however_it_is_written(echo: str) -> None:
    assert KNOWS.told(f"invalid x-api-key: Bearer {echo}, see {echo}") == (
        "invalid x-api-key: Bearer [hidden], see [hidden]"
    )


def test_a_key_at_the_end_of_what_is_told_is_not_told_in_part() -> None:
    for before in range(DETAIL_CHARS_MAX - len(KEY) - 2, DETAIL_CHARS_MAX + 2):
        assert KEY[:4] not in KNOWS.told("x" * before + KEY + "y" * 600)


def test_an_ordinary_text_stays_as_it_is() -> None:
    assert KNOWS.told("prompt is too long: 2 > 1") == "prompt is too long: 2 > 1"
    assert Wording(secrets=()).told("invalid") == "invalid"


@pytest.mark.parametrize(
    ("key", "text", "told"),
    [
        ("k", "the stream broke", "the stream broke"),
        ("k", "invalid x-api-key: k", "invalid x-api-key: [hidden]"),
        ("any", "many reached the company; key=any.", "many reached the company; key=[hidden]."),
        ("key", "invalid x-api-key", "invalid x-api-key"),
        ("longer-1", "xlonger-1x", "x[hidden]x"),
    ],
)
def test_a_key_that_may_be_a_word_is_hidden_only_where_it_stands_alone(key: str, text: str, told: str) -> None:
    assert Wording(secrets=(key,)).told(text) == told


@pytest.mark.parametrize(("text", "told"), [("bad \ud800 \0", "bad \N{REPLACEMENT CHARACTER} \N{SYMBOL FOR NULL}")])
def test_what_no_store_can_hold_is_replaced(text: str, told: str) -> None:
    assert KNOWS.told(text) == told


@pytest.mark.parametrize(
    ("text", "length"),
    [("x" * 5_000_000, 500), ("e\N{COMBINING ACUTE ACCENT}" * 400, 500), ("xe\N{COMBINING ACUTE ACCENT}" * 400, 499)],
)
def test_a_text_is_cut_between_characters(text: str, length: int) -> None:
    told = KNOWS.told(text)
    assert (len(told), text.startswith(told)) == (length, True)


def test_one_character_without_end_is_cut_all_the_same() -> None:
    assert len(KNOWS.told("e" + "\N{COMBINING ACUTE ACCENT}" * 9_000)) == 500


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("", ()),
        ("https://host/v1", ()),
        ("https://ann@host/v1", ()),
        ("http://ann:p%40ss@host:8080", ("p@ss", base64.b64encode(b"ann:p@ss").decode())),
    ],
)
def test_the_password_of_a_url_is_a_secret(url: str, secrets: tuple[str, ...]) -> None:
    assert secrets_of_url(url) == secrets
