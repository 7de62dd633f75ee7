"""The Dockerfiles and the compose file: sound by their own linters, and true to the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest

from tests.support.images import NAMES, compose_file, dockerfile, read_image
from tests.support.repository import PACKAGES, ROOT, pyproject

SCHEMA = ROOT / "tests" / "support" / "schemas" / "compose-spec.json"
SERVICES = ("gateway", "scheduler", "worker")


@pytest.mark.parametrize("name", NAMES)
def test_hadolint_has_nothing_to_say(name: str) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, dockerfile(name)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_compose_file_fits_the_compose_specification() -> None:
    validator = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert [error.message for error in validator.iter_errors(compose_file())] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_built_on_one_fixed_base(name: str) -> None:
    assert set(read_image(name).bases) == {"python:3.11.13-slim-bookworm"}


@pytest.mark.parametrize("name", NAMES)
def test_an_image_does_not_run_as_root(name: str) -> None:
    assert read_image(name).user == "10001:10001"


@pytest.mark.parametrize("name", NAMES)
def test_an_image_holds_all_of_our_packages(name: str) -> None:
    copied = re.findall(r"^COPY (\w+) \1$", read_image(name).text, re.MULTILINE)
    assert tuple(copied) == PACKAGES


@pytest.mark.parametrize("name", NAMES)
def test_an_image_starts_a_module_that_exists(name: str) -> None:
    command = read_image(name).command
    assert find_spec(command[command.index("-m") + 1]) is not None


def test_only_the_worker_has_a_toolchain() -> None:
    assert [name for name in NAMES if "g++" in read_image(name).text] == ["worker"]


def test_the_replica_installs_nothing_that_the_project_does_not_name() -> None:
    install = re.search(r"pip install --no-cache-dir ('.*') ", read_image("replica").text)
    assert install is not None
    assert set(re.findall(r"'([^']+)'", install[1])) <= set(pyproject()["project"]["dependencies"])


def test_every_image_of_ours_that_compose_starts_is_built_here() -> None:
    files = {name: service["build"]["dockerfile"] for name, service in _ours().items()}
    assert files == {"setup": "deploy/Dockerfile.gateway"} | {
        name: f"deploy/Dockerfile.{name}" for name in SERVICES
    }


def test_compose_keeps_no_secret_and_no_default_for_one() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{(\w+)([^}]*)\}", text))
    assert used == {
        ("CANDELA_SECRET_KEY", ":?"),
        ("CANDELA_POSTGRES_PASSWORD", ":?"),
        ("CANDELA_REDIS_PASSWORD", ":?"),
    }


def test_compose_publishes_the_gateway_on_loopback_and_nothing_else() -> None:
    published = {
        name: service["ports"] for name, service in compose_file()["services"].items() if "ports" in service
    }
    assert published == {"gateway": ["127.0.0.1:8080:8080"]}


def test_our_containers_can_neither_gain_rights_nor_change_themselves() -> None:
    assert all(
        service["read_only"]
        and service["cap_drop"] == ["ALL"]
        and service["security_opt"] == ["no-new-privileges:true"]
        for service in _ours().values()
    )


def _ours() -> dict[str, dict[str, dict[str, str]]]:
    return {name: service for name, service in compose_file()["services"].items() if "build" in service}
