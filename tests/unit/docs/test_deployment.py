"""What the pages and files say of running the engine elsewhere agrees with the engine, and with each other."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from torpor.gateway.options import GatewayOptions
from torpor.settings import SECTIONS
from torpor.supervisor.options import SupervisorOptions
from torpor.variables import variable_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operators.md").read_text()
COMPOSE = (ROOT / "compose.yaml").read_text()
LEAST_S = SupervisorOptions().stop_deadline_s + 10


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(text)


def test_the_secret_of_compose_is_the_image_users_alone() -> None:
    (user,) = re.findall(r"useradd --create-home --uid (\d+) agent", (ROOT / "Dockerfile").read_text())
    (variable,) = re.findall(r"^    environment: (\w+)$", COMPOSE, re.MULTILINE)
    command = f'(umask 077; echo "{variable}=$(openssl rand -base64 48)" > .env)'

    assert f'{{source: torpor, uid: "{user}", gid: "{user}", mode: 0o400}}' in COMPOSE
    assert command in COMPOSE
    assert command in PAGE
    assert "/.env" in (ROOT / ".gitignore").read_text().splitlines()


def test_whoever_stops_the_process_waits_longer_than_the_server() -> None:
    (grace,) = re.findall(r"stop_grace_period: (\d+)s", COMPOSE)
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)s$", block("ini"), re.MULTILINE)

    assert int(grace) >= LEAST_S
    assert int(stop) >= LEAST_S


def test_every_variable_of_the_unit_is_an_option() -> None:
    known = {
        variable_of(section, field.name)
        for section, options in SECTIONS.items()
        for field in msgspec.structs.fields(options)
    }

    named = set(re.findall(r"TORPOR__\w+", block("ini") + COMPOSE))

    assert named - known == set()
    assert len(named) == 3


def test_the_unit_is_one(tmp_path: Path) -> None:
    text = block("ini")
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)
    assert parser.sections() == ["Unit", "Service", "Install"]
    if (verify := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not here")

    file = tmp_path / "torpor.service"
    file.write_text(text.replace("/opt/torpor/bin/torpor", "/bin/true"))
    said = subprocess.run([verify, "verify", file], check=False, capture_output=True, text=True, timeout=60)

    assert [line for line in said.stderr.splitlines() if line.startswith(("torpor.service", str(file)))] == []


def test_a_proxy_waits_longer_than_the_server_is_silent() -> None:
    (wait,) = re.findall(r"proxy_read_timeout (\d+)s;", block("nginx"))

    assert int(wait) > GatewayOptions().ping_interval_s + GatewayOptions().ping_deadline_s
