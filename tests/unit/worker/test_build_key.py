"""What makes two compiles the same, and which options a revision may carry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.records import RevisionFile
from worker.build_key import build_key, settings_from
from worker.errors import InvalidCompileOptions
from worker.protocol import CompileSettings

CONFIG = RevisionFile("config.json", 10, "aa", "uploads/u/files/1")
WEIGHTS = RevisionFile("model.safetensors", 99, "bb", "uploads/u/files/2")
SETTINGS = CompileSettings()


def test_the_order_of_files_and_where_they_lie_do_not_matter() -> None:
    moved = replace(WEIGHTS, blob_key="uploads/v/files/7")
    assert build_key([CONFIG, WEIGHTS], SETTINGS, "1") == build_key([moved, CONFIG], SETTINGS, "1")


@pytest.mark.parametrize(
    "settings",
    [replace(SETTINGS, dtype="f32"), replace(SETTINGS, budget=9.0), replace(SETTINGS, target="cuda-sm90")],
)
def test_another_option_is_another_build(settings: CompileSettings) -> None:
    assert build_key([CONFIG], settings, "1") != build_key([CONFIG], SETTINGS, "1")


@pytest.mark.pitfall("C28")
def test_other_bytes_another_name_or_another_compiler_are_another_build() -> None:
    keys = {
        build_key([CONFIG], SETTINGS, "1"),
        build_key([replace(CONFIG, sha256="ff")], SETTINGS, "1"),
        build_key([replace(CONFIG, name="other.json")], SETTINGS, "1"),
        build_key([CONFIG], SETTINGS, "2"),
    }
    assert len(keys) == 4


def test_absent_options_take_the_defaults() -> None:
    assert settings_from({"max_context": None}, "none") == CompileSettings(budget="none")


@pytest.mark.parametrize(("given", "budget"), [("full", "full"), (12, 12.0), ("1.5", 1.5), (0, 0.0)])
def test_a_budget_is_a_name_or_seconds(given: object, budget: object) -> None:
    assert settings_from({"budget": given}, "quick").budget == budget


@pytest.mark.parametrize(
    "options",
    [
        {"colour": "red"},
        {"budget": "forever"},
        {"budget": -1},
        {"budget": float("nan")},
        {"budget": True},
        {"dtype": "int3"},
        {"target": 3},
        {"max_context": 0},
        {"max_sequences": "many"},
        {"seed": -1},
    ],
)
def test_a_bad_option_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidCompileOptions, match=str(next(iter(options)))):
        settings_from(options, "quick")
