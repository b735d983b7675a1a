"""Who is told of an option that cannot be used: the file, or the variable that set it."""

import pytest

from torpor.cli.main import main
from torpor.errors import ConfigError
from torpor.misfits import Words
from torpor.settings import SettingsInvalid
from torpor.variables import as_it_was_set

ORIGINS = ConfigError("config/torpor.toml", key="gateway.origins", found="a", expected="origins")
ENVIRON = {"TORPOR__GATEWAY__ORIGINS": '["a"]'}


def test_an_option_that_a_variable_set_is_told_of_the_variable() -> None:
    assert str(as_it_was_set(ORIGINS, ENVIRON)) == "environment: TORPOR__GATEWAY__ORIGINS is 'a', expected origins"


@pytest.mark.parametrize(
    "problem",
    [
        ConfigError("config/torpor.toml", key="gateway.port", found=1, expected="another"),
        ConfigError("config/agents/a.toml", key="gateway.origins", found=1, expected="another"),
        ConfigError("config/torpor.toml", key="content", found=Words("not TOML"), expected="TOML"),
        SettingsInvalid((ORIGINS,)),
    ],
)
def test_whatever_else_is_wrong_stays_where_it_is(problem: ConfigError) -> None:
    assert as_it_was_set(problem, ENVIRON) is problem


def test_the_command_names_the_variable(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ORIGINS

    monkeypatch.setenv("TORPOR__GATEWAY__ORIGINS", '["a"]')
    monkeypatch.setattr("torpor.cli.main.torpor.main", fail)

    assert main(["serve"]) == 1
    assert capsys.readouterr().err == "torpor: environment: TORPOR__GATEWAY__ORIGINS is 'a', expected origins\n"
