"""The tokenizer folder: what goes in, what is refused, and what a profile reads from it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from batching.prompt import NoChatTemplate, PromptProfile, SamplingDefaults, UnsupportedTokenizer
from batching.prompt.export import write_tokenizer_dir
from common.errors import UploadRefused
from tests.support.tiny_checkpoints import write_tiny_checkpoint
from tests.support.tiny_spm import write_spm_tokenizer

NOW = datetime(2025, 1, 1)


def changed(folder: Path, name: str, **changes: Any) -> Path:
    """A tiny checkpoint whose JSON file `name` has other fields; none removes one."""
    write_tiny_checkpoint(folder)
    path = folder / name
    raw = {**(json.loads(path.read_text()) if path.exists() else {}), **changes}
    path.write_text(json.dumps({key: value for key, value in raw.items() if value is not None}))
    return folder


def exported(folder: Path) -> PromptProfile:
    write_tokenizer_dir(folder, folder / "out")
    return PromptProfile.load(folder / "out")


def refused(folder: Path) -> tuple[str, str | None]:
    with pytest.raises(UploadRefused) as caught:
        write_tokenizer_dir(folder, folder / "out")
    (problem,) = caught.value.problems
    return problem.code, problem.where


def test_the_folder_is_complete_in_itself(tmp_path: Path) -> None:
    exported(write_tiny_checkpoint(tmp_path / "a"))
    assert sorted(path.name for path in (tmp_path / "a" / "out").iterdir()) == [
        "candela.json",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_candela_json_states_the_facts(tmp_path: Path) -> None:
    exported(write_tiny_checkpoint(tmp_path))
    assert json.loads((tmp_path / "out" / "candela.json").read_text()) == {
        "stop_ids": [2],
        "bos_id": 1,
        "add_bos": False,
        "context_length": 256,
        "vocab_size": 512,
    }


@pytest.mark.pitfall("S21")
@pytest.mark.parametrize(
    ("fields", "context"),
    [
        ({"max_position_embeddings": None, "n_positions": 64}, 64),
        ({"max_position_embeddings": None}, 2048),
    ],
)
def test_the_context_is_what_the_config_calls_it(
    fields: dict[str, Any], context: int, tmp_path: Path
) -> None:
    changed(tmp_path, "config.json", **fields)
    write_tokenizer_dir(tmp_path, tmp_path / "out")
    facts = json.loads((tmp_path / "out" / "candela.json").read_text())
    assert facts["context_length"] == context


def test_s21_any_id_of_any_config_stops(tmp_path: Path) -> None:
    changed(tmp_path, "config.json", eos_token_id=[2, 300])
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [301, 0]}))
    assert exported(tmp_path).stop_ids == (0, 2, 300, 301)


@pytest.mark.pitfall("S21")
def test_s21_an_end_of_turn_that_the_template_writes_stops_too(tmp_path: Path) -> None:
    changed(tmp_path, "config.json", eos_token_id=0)
    (tmp_path / "generation_config.json").write_text("{}")
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "eos_token": "<|endoftext|>"}))
    assert exported(tmp_path).stop_ids == (0, 2)


def test_bos_is_added_where_the_post_processor_adds_it(tmp_path: Path) -> None:
    write_spm_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}})
    )
    profile = exported(tmp_path)
    assert (profile.facts.bos_id, profile.facts.add_bos, profile.stop_ids) == (1, True, (2,))
    assert profile.encode_prompt("x").count(1) == 1


@pytest.mark.parametrize("flag", [True, False])
def test_bos_follows_the_configs_flag(flag: bool, tmp_path: Path) -> None:
    profile = exported(changed(tmp_path, "tokenizer_config.json", add_bos_token=flag))
    assert (profile.encode_prompt("x")[0] == 1) is flag


def test_names_in_special_tokens_map_count(tmp_path: Path) -> None:
    changed(tmp_path, "tokenizer_config.json", eos_token=None)
    changed_config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**changed_config, "eos_token_id": None}))
    (tmp_path / "generation_config.json").write_text("{}")
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "<|endoftext|>"}}))
    assert 0 in exported(tmp_path).stop_ids


def test_a_template_in_a_file_of_its_own_wins(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("from the file")
    profile = exported(tmp_path)
    ids = profile.encode_chat([{"role": "user", "content": "x"}], now=NOW).ids
    assert profile.tokenizer.decode(ids) == "from the file"


def test_named_templates_serve_chats_with_and_without_tools(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    profile = exported(changed(tmp_path, "tokenizer_config.json", chat_template=named))
    messages = [{"role": "user", "content": "x"}]
    assert profile.encode_chat(messages, now=NOW).text == "plain"
    assert profile.encode_chat(messages, now=NOW, tools=[{"type": "function"}]).text == "tools"


def test_a_base_model_has_no_chat_template(tmp_path: Path) -> None:
    profile = exported(changed(tmp_path, "tokenizer_config.json", chat_template=None))
    assert not profile.has_chat_template
    with pytest.raises(NoChatTemplate):
        profile.encode_chat([{"role": "user", "content": "x"}], now=NOW)


def test_recommended_sampling_is_read_and_nonsense_is_not(tmp_path: Path) -> None:
    folder = changed(tmp_path, "generation_config.json", temperature=0.6, top_p="x", top_k=50, min_p=True)
    assert exported(folder).defaults == SamplingDefaults(temperature=0.6, top_k=50)


def test_a_missing_tokenizer_is_refused_with_advice(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path)
    (tmp_path / "tokenizer.json").rename(tmp_path / "tokenizer.model")
    with pytest.raises(UploadRefused, match="save_pretrained") as caught:
        write_tokenizer_dir(tmp_path, tmp_path / "out")
    assert caught.value.code == "missing_tokenizer"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("tokenizer.json", b"version https://git-lfs.github.com/spec/v1\n", "lfs_pointer"),
        ("tokenizer.json", b"{", "bad_config"),
        ("tokenizer.json", b"[]", "bad_config"),
        ("tokenizer.json", b"\xff", "bad_config"),
        ("tokenizer.json", b"[" * 100_000, "bad_config"),
        ("tokenizer.json", b"{}", "unsupported_tokenizer"),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {"a": 0}}}', "unsupported_tokenizer"),
        ("tokenizer_config.json", b"nonsense", "bad_config"),
        ("chat_template.jinja", b"{% if %}", "chat_template_error"),
        ("chat_template.jinja", b"x" * 300_000, "chat_template_error"),
    ],
)
def test_what_cannot_be_used_is_refused(name: str, content: bytes, code: str, tmp_path: Path) -> None:
    (write_tiny_checkpoint(tmp_path) / name).write_bytes(content)
    assert refused(tmp_path)[0] == code


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    assert refused(changed(tmp_path, "config.json", vocab_size=500)) == (
        "tokenizer_mismatch",
        "tokenizer.json",
    )


def test_a_stop_id_outside_the_model_is_refused(tmp_path: Path) -> None:
    assert refused(changed(tmp_path, "config.json", eos_token_id=9999))[0] == "tokenizer_mismatch"


@pytest.mark.parametrize("facts", ["{", "[]", "{}", '{"stop_ids": 1, "bos_id": 1}'])
def test_a_folder_that_was_not_written_here_is_refused(facts: str, tmp_path: Path) -> None:
    exported(write_tiny_checkpoint(tmp_path))
    (tmp_path / "out" / "candela.json").write_text(facts)
    with pytest.raises(UnsupportedTokenizer, match="no tokenizer folder"):
        PromptProfile.load(tmp_path / "out")
