"""Short names of conversations."""

import click
import pytest

from torpor.cli.paths import child_hint, child_of, found_among, is_whole, resolved, resolved_job, shortened

PATHS = ("default/ada/c1", "default/ada/c2", "default/bob/c1", "north/ada/c1")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("c2", "default/ada/c2"),
        ("bob/c1", "default/bob/c1"),
        ("north/ada/c1", "north/ada/c1"),
        ("default/ada/c1", "default/ada/c1"),
    ],
)
def test_name_that_is_unique_stands_for_its_path(name: str, path: str) -> None:
    assert resolved(name, PATHS) == path


@pytest.mark.parametrize("name", ["c3", "1", "a/c1", "eve/c1", "default/ada", "x/default/ada/c1", ""])
def test_name_of_nothing_is_told_with_where_to_look(name: str) -> None:
    with pytest.raises(click.ClickException, match=rf"no conversation '{name}' here, `torpor ps` lists them"):
        resolved(name, PATHS)


def test_name_may_be_one_of_nothing_yet() -> None:
    assert (found_among("c2", PATHS), found_among("c3", PATHS)) == ("default/ada/c2", None)


def test_name_of_several_is_told_with_all_of_them() -> None:
    with pytest.raises(click.ClickException) as caught:
        resolved("c1", PATHS)

    assert caught.value.message == "conversation 'c1' may be any of ada/c1, bob/c1, north/ada/c1, name more of it"


def test_jobs_are_named_alike_in_words_of_their_own() -> None:
    paths = ("default/ada/c1/turn-1", "default/ada/c2/turn-1")
    assert resolved_job("c2/turn-1", paths) == "default/ada/c2/turn-1"
    with pytest.raises(click.ClickException, match="no job 'turn-2' here, `torpor jobs` lists them"):
        resolved_job("turn-2", paths)
    with pytest.raises(click.ClickException, match="job 'turn-1' may be any of ada/c1/turn-1, ada/c2/turn-1, name"):
        resolved_job("turn-1", paths)


def test_long_list_of_several_is_cut() -> None:
    with pytest.raises(click.ClickException, match=r"may be any of o0/c, o1/c, o2/c, o3/c, o4/c, …, name more"):
        resolved("c", [f"default/o{number}/c" for number in range(9)])


def test_whole_path_needs_no_look_at_what_there_is() -> None:
    assert [is_whole(name) for name in ("c1", "ada/c1", "default/ada/c1")] == [False, False, True]


def test_common_tenant_is_not_shown() -> None:
    assert [shortened(path) for path in PATHS] == ["ada/c1", "ada/c2", "bob/c1", "north/ada/c1"]


def test_id_that_is_one_of_a_sub_agent_is_told_with_how_that_is_shown() -> None:
    first, second = "0123456789abcdef", "fedcba9876543210"
    with pytest.raises(click.ClickException) as caught:
        resolved(f"ada/c1/{first}/{second}", PATHS)

    shown = f"`torpor inspect ada/c1 --child {first}/{second}`"
    assert caught.value.message.endswith(f"`torpor ps` lists them; a sub-agent is shown by {shown}")
    assert [child_hint(name) for name in ("ada/c1", first, f"ada/{first}x")] == ["", "", ""]


def test_what_works_for_a_sub_agent_is_told_as_that_ones() -> None:
    with pytest.raises(click.ClickException) as caught:
        child_of("first", "x", begun=["aceafb61"], above="b1")

    assert caught.value.message.startswith("no sub-agent 'x' of 'first/b1' here")
    assert caught.value.message.endswith("`torpor inspect first --child b1` names them")


def test_the_name_of_a_sub_agent_may_be_short_where_it_is_unique() -> None:
    begun = ["aceafb61", "acf00000", "b1", "b12"]

    assert child_of("first", "ace", begun=begun) == "aceafb61"
    assert child_of("first", "b1", begun=begun) == "b1", "the whole name of one, and the beginning of another's"


@pytest.mark.parametrize(
    ("child", "complaint"),
    [
        ("ac", "sub-agent 'ac' of 'first' may be any of aceafb61, acf00000, name more of it"),
        ("x", "no sub-agent 'x' of 'first' here"),
        ("", "no sub-agent '' of 'first' here"),
    ],
)
def test_what_may_be_several_sub_agents_or_none_is_told_so(child: str, complaint: str) -> None:
    with pytest.raises(click.ClickException, match=complaint):
        child_of("first", child, begun=["aceafb61", "acf00000"])
