"""A skill is seen used, without a model, in the way that docs/skill-authors.md shows."""

import re
from pathlib import Path

from tests.support.command_line import Command

PAGE = (Path(__file__).parents[2] / "docs" / "skill-authors.md").read_text()
RULE = "[[rule]]\n"


def test_rehearsal_of_the_page_loads_the_skill_of_the_page(tmp_path: Path) -> None:
    skill, by_bus = re.findall(r"```markdown\n(.*?)```", PAGE, re.DOTALL)
    (rule,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    torpor = Command(tmp_path)
    torpor.run("init", "office")
    folder = tmp_path / "office" / "skills" / "giving-directions"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text(skill)
    (folder / "references" / "by-bus.md").write_text(by_bus)
    script = tmp_path / "office" / "config" / "rehearsals" / "clinic.toml"
    script.write_text(script.read_text().replace(RULE, f"{rule}\n{RULE}", 1))

    with torpor.serving("--home", "office"):
        reply, why = map(torpor.shell, commands.splitlines())
        request = torpor.output("inspect", "lost", "--request", "--home", "office")

    assert reply == "Do you come by bus, by car or on foot?\n"
    assert re.search(r"^skill +giving-directions +version \w+, \d+ tokens", why, re.MULTILINE)
    assert "The door is green." in request
