"""What lies in a folder of skills is loaded or told, in one order, and never leads out of it."""

import os
import random
import shutil
import socket
from pathlib import Path

import msgspec
import pytest

from tests.integration.skillbook.shelves import OPTIONS, book, keys, load, put, text, troubles
from torpor.errors import ToolFailed
from torpor.skillbook.codes import CODES
from torpor.skillbook.index import index_text, search


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    return tmp_path / "skills"


def test_skills_are_loaded_by_key(root: Path) -> None:
    put(root, "b")
    put(root, "a")
    put(root, "nested/c")
    (root / "README.md").write_text("no skill")

    catalogue = load(root)

    assert keys(catalogue) == ["a", "b", "c"]
    assert catalogue.problems == ()
    assert {skill.scope for skill in catalogue.skills} == {"skills"}
    assert repr(catalogue).startswith("<Catalogue skills=3 shadowed=0 ")


def test_folder_that_is_not_there_has_no_skills(tmp_path: Path) -> None:
    catalogue = load(tmp_path / "missing")
    assert (catalogue.skills, catalogue.problems) == ((), ())


def test_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "skills").write_text("")
    assert troubles(load(tmp_path / "skills")) == [("root_unreadable", "skills")]


def test_text_is_the_body_with_the_files_below_it(root: Path) -> None:
    put(root, "a")
    put(root, "a/references", "xx", file_name="z.md")
    put(root, "a/references", "x" * 1234, file_name="b.md")
    put(root, "a", "x", file_name="notes.txt")
    put(root, "a/.git", "x", file_name="config")
    put(root, "a/node_modules/x", "x", file_name="x.js")
    catalogue = load(root)
    (skill,) = catalogue.skills

    assert catalogue.body(skill).text == (
        "Do it.\n\nFiles of this skill, for read_skill_file with the name 'a':\n\n"
        "- notes.txt (1 bytes)\n- references/b.md (1,234 bytes)\n- references/z.md (2 bytes)"
    )
    assert catalogue.body(skill).digest == skill.digest


def test_long_list_of_files_is_cut_and_says_so(root: Path) -> None:
    put(root, "a")
    for number in range(20):
        put(root, f"a/{number % 3}", "x", file_name=f"{number}.md")
    catalogue = load(root, options=msgspec.structs.replace(OPTIONS, listing_max=5))

    listed = catalogue.body(catalogue.skills[0]).text
    assert listed.count("bytes)") == 5
    assert listed.endswith("- the list is incomplete: there are more files than are listed here")


def test_skill_inside_a_skill_is_its_own(root: Path) -> None:
    put(root, "outer")
    put(root, "outer/inner")
    put(root, "outer/inner", "x", file_name="of-inner.md")
    put(root, "outer/docs", "x", file_name="of-outer.md")
    catalogue = load(root)
    outer, inner = catalogue.get("outer"), catalogue.get("inner")

    assert outer is not None
    assert inner is not None
    assert "of-inner" not in catalogue.body(outer).text
    assert "of-outer" in catalogue.body(outer).text
    assert "of-inner" in catalogue.body(inner).text


def test_skill_is_found_by_its_name_however_it_is_written(root: Path) -> None:
    put(root, "a", text("Taking Payments"))
    catalogue = load(root)

    assert keys(catalogue) == ["taking-payments"]
    for name in ("taking-payments", "Taking Payments", "taking_payments", "skills:taking-payments"):
        assert catalogue.get(name) == catalogue.skills[0]
    for name in ("taking", "", "other:taking-payments", ":"):
        assert catalogue.get(name) is None


def test_name_goes_to_the_first_folder_and_the_other_is_told_with_both(root: Path) -> None:
    for folder in random.Random(5).sample(["b", "a", "c"], k=3):
        put(root, folder, text("deja", body=f"from {folder}"))
    catalogue = load(root)

    winner = catalogue.get("deja")
    assert winner is not None
    assert keys(catalogue) == ["deja"]
    assert catalogue.body(winner).text == "from a"
    assert [shadowed.address for shadowed in catalogue.shadowed] == ["skills:b", "skills:c"]
    loser = catalogue.get("skills:c")
    assert loser is not None
    assert catalogue.body(loser).text == "from c"
    collisions = [str(problem) for problem in catalogue.problems if problem.diagnostic.code == "collision"]
    assert collisions == [
        f"skills/{name}: answers to 'deja' like skills/a, which has it; this one is 'skills:{name}'" for name in "bc"
    ]


def test_names_that_differ_in_separators_collide(root: Path) -> None:
    put(root, "a_b", text("a_b"))
    put(root, "a-b")
    catalogue = load(root)
    assert keys(catalogue) == ["a-b"]
    assert [shadowed.skill.name for shadowed in catalogue.shadowed] == ["a_b"]


def test_first_folder_of_skills_wins_and_the_other_answers_with_its_scope(tmp_path: Path) -> None:
    put(tmp_path / "home", "z", text("deja", body="home"))
    put(tmp_path / "bundled", "a", text("deja", body="bundled"))
    put(tmp_path / "bundled", "b", text("deja", body="bundled again"))
    catalogue = load(tmp_path / "home", tmp_path / "bundled")

    bodies = {address: catalogue.body(skill).text for address, skill in catalogue.addresses().items()}
    assert bodies == {"deja": "home", "bundled:deja": "bundled", "bundled:b": "bundled again"}
    assert catalogue.get("home:deja") == catalogue.get("deja")
    assert catalogue.get("Bundled:Deja") == catalogue.get("bundled:deja")


def test_addresses_never_coincide(root: Path) -> None:
    put(root, "a", text("deja"))
    put(root, "b-c", text("deja"))
    put(root, "b/c", text("deja"))
    assert sorted(load(root).addresses()) == ["deja", "skills:b-c", "skills:b-c-2"]


def test_digest_tells_equal_catalogues_from_others(root: Path) -> None:
    put(root, "a")
    put(root, "b")
    first = load(root).digest
    assert load(root).digest == first
    put(root, "b", "x", file_name="new.md")
    second = load(root).digest
    assert second != first
    put(root, "b", text("b", body="other"))
    assert load(root).digest not in {first, second}


def test_skill_of_an_older_catalogue_gives_the_text_that_took_its_place(root: Path) -> None:
    put(root, "a")
    (old,) = load(root).skills
    put(root, "a", text("a", body="newer"))
    newer = load(root)
    assert newer.body(old).text == "newer"
    assert newer.body(old).digest != old.digest
    shutil.rmtree(root / "a")
    with pytest.raises(ToolFailed, match="skill 'a' is no longer there, go on without it"):
        load(root).body(old)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("# no front matter\n", "no_front_matter"),
        ("---\nname: a\n---\n", "description_missing"),
        ("---\nname: a\n", "unclosed"),
        (b"x" * (OPTIONS.file_cap_bytes + 1), "too_large"),
    ],
)
def test_skill_that_cannot_be_loaded_is_told_and_the_others_load(root: Path, content: str | bytes, code: str) -> None:
    put(root, "a", content)
    put(root, "b")
    catalogue = load(root)
    assert keys(catalogue) == ["b"]
    assert troubles(catalogue) == [(code, "skills/a/SKILL.md")]


def test_texts_beyond_their_cap_are_told_and_not_loaded(root: Path) -> None:
    for name in "abc":
        put(root, name, text(name, body=random.Random(name).randbytes(2_000).hex()))
    catalogue = load(root, options=msgspec.structs.replace(OPTIONS, bodies_cap_bytes=5_000))
    assert keys(catalogue) == ["a", "b"]
    assert troubles(catalogue) == [("over_capacity", "skills/c")]


def test_folders_beyond_the_bounds_are_told(root: Path) -> None:
    put(root, "1/2/3/4")
    put(root, "2")
    deep = load(root, options=msgspec.structs.replace(OPTIONS, scan_depth_max=3))
    assert keys(deep) == ["2"]
    assert troubles(deep) == [("scan_bounds", "skills/1/2/3/4")]
    many = load(root, options=msgspec.structs.replace(OPTIONS, scan_folders_max=4))
    assert keys(many) == ["4"]
    assert troubles(many) == [("scan_bounds", "skills/2")]


def test_skill_file_beside_the_folders_is_told(root: Path) -> None:
    put(root, ".", text("a"))
    assert troubles(load(root)) == [("misplaced", "skills")]


def test_capitals_of_the_file_name_are_forgiven_and_told(root: Path) -> None:
    put(root, "a", file_name="skill.md")
    put(root, "b", text("b", body="small"), file_name="skill.md")
    put(root, "b", text("b", body="capitals"))
    catalogue = load(root)
    assert keys(catalogue) == ["a", "b"]
    assert catalogue.body(catalogue.skills[1]).text == "capitals"
    assert troubles(catalogue) == [("file_name", "skills/a/skill.md"), ("case_twin", "skills/b/SKILL.md")]


def test_file_that_links_out_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text(text("secret"))
    (root / "a").mkdir()
    (root / "a" / "SKILL.md").symlink_to(tmp_path / "secret.md")
    put(root, "b")
    catalogue = load(root)
    assert keys(catalogue) == ["b"]
    assert troubles(catalogue) == [("link", "skills/a/SKILL.md")]


def test_folder_that_links_out_or_round_is_refused(root: Path, tmp_path: Path) -> None:
    put(tmp_path / "other", "secret")
    (root / "out").symlink_to(tmp_path / "other")
    (root / "etc").symlink_to("/etc")
    (root / "loop").symlink_to(root)
    (root / "itself").symlink_to("itself")
    (root / "README.md").symlink_to(tmp_path / "other" / "secret" / "SKILL.md")
    put(root, "b")
    catalogue = load(root)
    assert keys(catalogue) == ["b"]
    assert troubles(catalogue) == [(("link"), f"skills/{name}") for name in ("etc", "itself", "loop", "out")]


def test_link_among_the_files_of_a_skill_is_told_and_not_listed(root: Path) -> None:
    put(root, "a")
    put(root, "a/references", "x", file_name="real.md")
    (root / "a" / "references" / "hosts").symlink_to("/etc/hosts")
    (root / "a" / "etc").symlink_to("/etc")
    catalogue = load(root)
    assert troubles(catalogue) == [
        ("resource_link", "skills/a/etc"),
        ("resource_link", "skills/a/references/hosts"),
    ]
    assert catalogue.body(catalogue.skills[0]).text.count("bytes)") == 1


def test_folder_of_skills_may_itself_be_a_link(root: Path, tmp_path: Path) -> None:
    put(root, "a")
    (tmp_path / "linked").symlink_to(root)
    assert keys(load(tmp_path / "linked")) == ["a"]


def test_hard_link_is_an_ordinary_file(root: Path, tmp_path: Path) -> None:
    original = put(tmp_path / "store", "a")
    (root / "a").mkdir()
    (root / "a" / "SKILL.md").hardlink_to(original)
    assert keys(load(root)) == ["a"]


def test_what_is_no_ordinary_file_is_told_and_never_waited_for(root: Path) -> None:
    for name in ("folder", "pipe", "socket"):
        (root / name).mkdir()
    (root / "folder" / "SKILL.md").mkdir()
    os.mkfifo(root / "pipe" / "SKILL.md")
    here = Path.cwd()
    os.chdir(root / "socket")  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("SKILL.md")
    os.chdir(here)
    put(root, "z")
    catalogue = load(root)
    assert keys(catalogue) == ["z"]
    assert troubles(catalogue) == [("unreadable", f"skills/{name}/SKILL.md") for name in ("folder", "pipe", "socket")]


def test_device_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, "a")
    real = os.open

    def zero(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        return real("/dev/zero", flags) if path == "SKILL.md" else real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", zero)
    assert troubles(load(root)) == [("unreadable", "skills/a/SKILL.md")]


@pytest.mark.parametrize("name", ["SKILL.md", "a"])
def test_what_may_not_be_read_is_told(root: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    put(root, "a")
    put(root, "b")
    real = os.open

    def denying(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == name:
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", denying)
    assert ("unreadable" in dict(troubles(load(root)))) is True


def test_link_put_in_between_the_look_and_the_opening_is_met(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(root, "a")
    (tmp_path / "secret.md").write_text(text("secret"))
    real = os.open

    def swapping(opened: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if opened == "SKILL.md":
            path.unlink()
            path.symlink_to(tmp_path / "secret.md")
        return real(opened, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapping)
    catalogue = load(root)
    assert catalogue.skills == ()
    assert troubles(catalogue) == [("link", "skills/a/SKILL.md")]


def test_file_that_is_written_while_it_is_read_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(root, "a", text("a", body="old"))
    real, statuses = os.fstat, []

    def growing(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        statuses.append(status)
        if len(statuses) == 1:
            path.write_text(text("a", body="new and longer"))
        return status

    monkeypatch.setattr(os, "fstat", growing)
    catalogue = load(root)
    assert catalogue.body(catalogue.skills[0]).text == "new and longer"


def test_names_that_are_no_text_do_no_harm(root: Path) -> None:
    folder = os.fsdecode(b"b\xe9ton")
    put(root, folder, text("concrete"))
    put(root, folder, "x", file_name=os.fsdecode(b"\xff.md"))
    put(root, "x" * 255)
    put(root, "é" * 127)
    catalogue = load(root)
    assert "concrete" in keys(catalogue)
    assert len(catalogue.skills) == 3
    skill = catalogue.get("concrete")
    assert skill is not None
    assert catalogue.body(skill).text.endswith("- the list is incomplete: there are more files than are listed here")
    assert ("name_not_folder", "skills/b\ufffdton/SKILL.md") in troubles(catalogue)
    msgspec.json.encode([str(problem) for problem in catalogue.problems])


def test_path_longer_than_the_system_takes_in_one_piece_is_read(root: Path) -> None:
    here = Path.cwd()
    os.chdir(root)
    try:
        for _ in range(20):
            Path("d" * 250).mkdir()
            os.chdir("d" * 250)
        Path("SKILL.md").write_text(text("deep"))
    finally:
        os.chdir(here)
    assert keys(load(root, options=msgspec.structs.replace(OPTIONS, scan_depth_max=30))) == ["deep"]


def test_every_grave_code_of_loading_is_told_as_an_error(root: Path) -> None:
    put(root, "a", "none")
    (root / "b").symlink_to("/etc")
    assert {problem.diagnostic.severity for problem in load(root).problems} == {"error"}
    assert {CODES[code].loading for code, _ in troubles(load(root))} == {"error"}


def test_five_thousand_skills_load_within_their_bounds(root: Path) -> None:
    for number in range(5_000):
        put(root, f"{number % 50}/skill-{number:04}", text(f"skill-{number:04}", body="Do it. " * 200))
    skill_book = book(root)
    catalogue = skill_book.current
    index = index_text(catalogue.skills, budget_tokens=OPTIONS.index_budget_tokens)

    assert len(catalogue.skills) == 5_000
    assert catalogue.problems == ()
    assert index.tokens <= OPTIONS.index_budget_tokens
    assert len(index.listed) + len(index.left_out) == 5_000
    assert [skill.key for skill in search(catalogue.skills, "skill 4999", limit=1)] == ["skill-4999"]
    assert catalogue.body(catalogue.skills[-1]).text.startswith("Do it.")
