"""The pages under docs/: made ones are current, written ones are complete, links lead somewhere."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from candela.cli.lazy import COMMANDS, load_command
from docs.generate import commands, configuration, metrics, pitfalls, rules
from tests.support.gateway import make_gateway
from tests.support.repository import PACKAGES, ROOT, imported, pyproject, python_files, short, written_files
from tests.support.routes import routes_of

DOCS = ROOT / "docs"
PAGES = tuple(path for path in written_files() if path.suffix == ".md")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
REQUIREMENT = re.compile(r"^[A-Za-z0-9_.-]+")
UNNAMED_ROUTES = ("/", "/favicon.ico", "/openapi.json", "/dashboard")


@pytest.mark.parametrize(
    "made", [configuration, commands, metrics, pitfalls, rules], ids=lambda module: module.PAGE.name
)
def test_a_page_made_from_the_code_is_current(made: object) -> None:
    name = getattr(made, "__name__", "")
    module = importlib.import_module(name)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), f"run: python -m {name}"


def test_every_pitfall_has_an_id_of_its_own() -> None:
    ids = pitfalls.row_ids()
    assert len(set(ids)) == len(ids) > 0


def test_tests_are_marked_with_pitfalls_that_exist() -> None:
    assert set(pitfalls.marked_files()) - set(pitfalls.row_ids()) == set()


def test_every_setting_says_what_it_is() -> None:
    assert [setting.variable for setting in configuration.settings() if not setting.about] == []


def test_every_command_says_what_it_does() -> None:
    silent = [
        f"{name} {child}"
        for name in COMMANDS
        for child, command in getattr(load_command(name), "commands", {name: load_command(name)}).items()
        if not command.help
    ]
    assert silent == []


def test_every_command_of_the_readme_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    used = set(re.findall(r"^\s+(?:\$ )?candela ([a-z]+)", text, re.MULTILINE))
    assert used
    assert used <= set(COMMANDS)


def test_every_command_is_in_a_page_that_a_person_wrote() -> None:
    written = [page for page in PAGES if page != commands.PAGE]
    text = "\n".join(page.read_text(encoding="utf-8") for page in written)
    assert [name for name in COMMANDS if f"candela {name}" not in text] == []


def test_dependencies_are_those_of_the_project() -> None:
    project = pyproject()["project"]
    wanted = [
        *project["dependencies"],
        *(r for extra in project["optional-dependencies"].values() for r in extra),
    ]
    text = (DOCS / "dependencies.md").read_text(encoding="utf-8").split("## Kept in")[0]
    listed = set(re.findall(r"^\| ([A-Za-z0-9_.-]+) \|", text, re.MULTILINE)) - {"package", "---"}
    assert listed == {match[0] for r in wanted if (match := REQUIREMENT.match(r))}


def test_what_is_installed_to_run_is_imported() -> None:
    names = {
        match[0].replace("-", "_").lower()
        for r in pyproject()["project"]["dependencies"]
        if (match := REQUIREMENT.match(r))
    }
    assert names - set(imported(python_files(*PACKAGES))) == set()


def test_every_route_is_in_the_page_about_the_api(tmp_path: Path) -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    routes = routes_of(make_gateway(tmp_path).app)
    missing = [
        f"{route.method} {route.path}"
        for route in routes
        if not route.path.startswith(UNNAMED_ROUTES[1:]) and route.path != "/"
        if f"`{route.method} {route.path}`" not in text
    ]
    assert missing == []


def test_every_link_between_pages_leads_somewhere() -> None:
    broken = [
        f"{short(page)}: {target}"
        for page in PAGES
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not target.startswith(("http://", "https://", "#"))
        if not (page.parent / target.split("#")[0]).exists()
    ]
    assert broken == []


def test_every_decision_has_a_number_of_its_own_and_is_listed() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    decisions = sorted(path.name for path in (DOCS / "adr").glob("*.md"))
    assert len({name[:4] for name in decisions}) == len(decisions)
    assert [name for name in decisions if name not in index] == []


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert [
        page.name for page in DOCS.glob("*.md") if page.name != "index.md" and page.name not in index
    ] == []


def test_the_changelog_has_a_section_for_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{pyproject()['project']['version']}]" in text


def test_paths_named_in_pages_exist() -> None:
    """A path in code style that begins with one of our folders names something."""
    pattern = re.compile(rf"`((?:{'|'.join(PACKAGES)}|tests|docs|deploy|loadtest)/[\w./-]+\w)`")
    missing = [
        f"{short(page)}: {path}"
        for page in PAGES
        for path in pattern.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    ]
    assert missing == []
