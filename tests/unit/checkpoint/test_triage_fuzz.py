"""Whatever JSON a stranger sends, triage answers with a list of problems and nothing else."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.checkpoint import INDEX_NAME, Problem, read_heads, triage
from tests.support.tiny_checkpoints import write_tiny_checkpoint

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@lru_cache
def announced() -> tuple[dict[str, int], dict[str, Any], dict[str, Any]]:
    folder = write_tiny_checkpoint(Path(mkdtemp()), "sharded")
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    heads = {
        name: json.loads(head if name == INDEX_NAME else head[8:])
        for name, head in read_heads(folder, sizes).items()
    }
    return sizes, json.loads((folder / "config.json").read_text()), heads


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_any_config_gets_an_answer(data: st.DataObject) -> None:
    sizes, config, heads = announced()
    names = st.sampled_from(
        [*config, "rope_parameters", "sliding_window", "layer_types", "quantization_config"]
    )
    changed = {**config, **data.draw(st.dictionaries(names, JSON, max_size=4))}
    assert all(isinstance(problem, Problem) for problem in triage(sizes, changed, heads))


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_any_header_gets_an_answer(data: st.DataObject) -> None:
    sizes, config, heads = announced()
    file = data.draw(st.sampled_from(sorted(heads)))
    name = data.draw(st.sampled_from(sorted(heads[file])))
    entry = heads[file][name]
    field = data.draw(st.sampled_from(sorted(entry) if isinstance(entry, dict) else ["x"]))
    value = data.draw(JSON)
    changed = data.draw(
        st.sampled_from([value, {**entry, field: value} if isinstance(entry, dict) else value])
    )
    problems = triage(sizes, config, {**heads, file: {**heads[file], name: changed}})
    assert all(isinstance(problem, Problem) for problem in problems)


@given(st.dictionaries(st.text(max_size=30), st.integers(-1, 10), max_size=6), JSON)
@settings(max_examples=200, deadline=None)
def test_any_names_get_an_answer(files: dict[str, int], index: Any) -> None:
    raw = index if isinstance(index, dict) else {"weight_map": index}
    assert isinstance(triage({**files, INDEX_NAME: 5}, None, {INDEX_NAME: raw}), tuple)
