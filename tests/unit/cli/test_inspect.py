"""Which options of ``torpor inspect`` go together."""

import pytest

from torpor.cli.main import main


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--call 3-1-1", "--call names a request, expected --request, --diff, --why or --budget with it"),
        ("--call 3-1-1 --cache", "--call names a request, expected --request, --diff, --why or --budget with it"),
        ("--call 3-1-1 --content", "--call names a request"),
        ("--turn 1 --content", "--content belongs to the timeline of the whole conversation, expected no --turn"),
        ("--why --content", "--content belongs to the timeline of the whole conversation, expected no --why"),
        ("--why --cache", "each show something else"),
        ("--child=", "--child is empty, expected the name of a sub-agent"),
    ],
)
def test_options_of_which_one_would_be_passed_over_are_refused(
    options: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "first", *options.split()]) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())
