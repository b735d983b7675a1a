"""The variables of the environment that stand for options, ``TORPOR__SECTION__KEY``, and who set what is wrong.

Above: settings, which read them, and the command line, which tells of faults. An option that a room finds unusable long
after the settings were read is told as one of the file; here it is given back to whoever set it.
"""

from collections.abc import Mapping
from typing import Final

from torpor.errors import ConfigError

SETTINGS_FILE: Final = "config/torpor.toml"
ENVIRONMENT: Final = "environment"
"""Where an unusable variable is, in an error."""
VARIABLE_PREFIX: Final = "TORPOR__"
_SHORT_PREFIX: Final = "TORPOR_"


def variable_of(section: str, key: str) -> str:
    """What wins over ``key`` of ``[section]``."""
    return f"{VARIABLE_PREFIX}{section}__{key}".upper()


def meant_as_variable(name: str) -> str:
    """The variable that somebody had in mind who wrote one underscore in place of the first two; empty for any other
    name, such as those of variables that are no options."""
    is_meant = name.startswith(_SHORT_PREFIX) and "__" in name and not name.startswith(VARIABLE_PREFIX)
    return f"{VARIABLE_PREFIX}{name.removeprefix(_SHORT_PREFIX)}" if is_meant else ""


def as_it_was_set(problem: ConfigError, environ: Mapping[str, str]) -> ConfigError:
    """``problem``, told of the variable where one in ``environ`` set the option that it is about.

    Those of the settings' own reading know where they are from, and stay as they are.
    """
    section, _, key = problem.key.partition(".")
    variable = variable_of(section, key)
    if type(problem) is not ConfigError or problem.where != SETTINGS_FILE or variable not in environ:
        return problem
    return ConfigError(ENVIRONMENT, key=variable, found=problem.found, expected=problem.expected)
