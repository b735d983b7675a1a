"""The rules of the house are only worth having if breaking one is noticed."""

from pathlib import Path, PurePosixPath

import pytest

from tests.support.house_rules import MAX_LINES, crossings, findings, machine_names, oversized, quoted_reasons


def write(root: Path, name: str, text: str) -> PurePosixPath:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return PurePosixPath(name)


def test_a_module_at_the_limit_passes_and_one_line_more_does_not() -> None:
    path = PurePosixPath("runtime/torpor/long.py")

    assert list(oversized(path, "x\n" * MAX_LINES)) == []
    assert list(oversized(path, "x\n" * (MAX_LINES + 1))) == [
        "runtime/torpor/long.py: 601 lines, a module has at most 600"
    ]


def test_only_modules_have_a_size_limit() -> None:
    assert list(oversized(PurePosixPath("constraints.txt"), "x\n" * 1000)) == []


@pytest.mark.parametrize(
    "line",
    [
        "see /" + "root/notes.txt",
        "cd /" + "home/ada/src",
        "url = 'https://pypi" + ".org/x'",
        "https://files.pythonhosted" + ".org/x",
    ],
)
def test_a_line_that_names_a_machine_or_an_index_is_found(line: str) -> None:
    [finding] = machine_names(PurePosixPath("docs/a.md"), f"fine\n{line}\n")

    assert finding.startswith("docs/a.md:2: names a machine or a package index")


@pytest.mark.parametrize("line", ["/home/agent/home", "../shared/data", "a/work/b", "~/work/b", "http://127.0.0.1:1"])
def test_a_path_that_exists_on_every_machine_is_no_finding(line: str) -> None:
    assert list(machine_names(PurePosixPath("docs/a.md"), line)) == []


@pytest.mark.parametrize(
    "line",
    [
        'raise ConfigError(where, key="k", found="without its library", expected="it")',
        'raise ConfigError(where, key="k", found=f"{path}, unreadable", expected="it")',
        'raise ConfigError(where, key="k", found=str(exc), expected="it")',
        'found, expected = "with a user", "one"; raise ConfigError(where, key="k", found=found, expected=expected)',
    ],
)
def test_an_error_that_quotes_a_reason_as_a_value_is_found(line: str) -> None:
    [finding] = quoted_reasons(PurePosixPath("runtime/torpor/a.py"), f"def check():\n    {line}\n")

    assert finding.startswith("runtime/torpor/a.py:2: what was found is words of ours")
    assert list(quoted_reasons(PurePosixPath("tests/a.py"), f"def check():\n    {line}\n")) == []


@pytest.mark.parametrize("found", ['Words(f"{path}, unreadable")', "options.tls", '"s3"', "3"])
def test_an_error_that_shows_a_value_or_says_words_is_no_finding(found: str) -> None:
    text = f'def check():\n    raise ConfigError(where, key="k", found={found}, expected="it")\n'

    assert list(quoted_reasons(PurePosixPath("runtime/torpor/a.py"), text)) == []


def test_an_oracle_must_not_reach_the_engine_even_through_other_test_code(tmp_path: Path) -> None:
    oracle = write(tmp_path, "tests/simulation/oracle.py", "from tests.support import ledger\n")
    write(tmp_path, "tests/support/ledger.py", "from . import rows\n")
    write(tmp_path, "tests/support/rows.py", "from torpor.records import journal\n")

    [finding] = crossings(tmp_path, oracle)

    assert finding.startswith(
        "tests/simulation/oracle.py > tests/support/ledger.py > tests/support/rows.py: imports torpor.records"
    )


def test_a_test_of_an_oracle_may_import_the_engine(tmp_path: Path) -> None:
    path = write(tmp_path, "tests/unit/test_oracle.py", "import torpor\n")

    assert list(crossings(tmp_path, path)) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("runtime/torpor_fake_api/app.py", "import torpor\n"),
        ("runtime/torpor/app.py", "from torpor_fake_api import server\n"),
        ("tools/clinic.py", "from torpor.toolhost.contract import tool\n"),
    ],
)
def test_what_stands_apart_must_not_import_what_it_must_not_see(tmp_path: Path, name: str, text: str) -> None:
    assert len(list(crossings(tmp_path, write(tmp_path, name, text)))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("runtime/torpor_fake_api/app.py", "import torpor_fake_api.rules\n"),
        ("runtime/torpor/app.py", "from torpor import settings\n"),
        ("tools/clinic.py", "from torpor import tool\n"),
        ("tests/support/oracle.py", "from torpor_fake_api.rules.judge import violations\n"),
    ],
)
def test_what_stands_apart_may_import_its_own_side(tmp_path: Path, name: str, text: str) -> None:
    assert list(crossings(tmp_path, write(tmp_path, name, text))) == []


def test_every_rule_is_applied_to_every_readable_file(tmp_path: Path) -> None:
    oracle = write(tmp_path, "tests/support/oracle.py", "import torpor\n" + "x = 1\n" * MAX_LINES)
    page = write(tmp_path, "docs/page.md", "in /" + "root/x\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")

    assert list(findings(tmp_path, [oracle, page, PurePosixPath("picture.png")])) == [
        "tests/support/oracle.py: 601 lines, a module has at most 600",
        "tests/support/oracle.py: imports torpor, but a judge shares no code with what it judges",
        "docs/page.md:1: names a machine or a package index: /" + "root/x",
    ]
