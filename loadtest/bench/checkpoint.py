"""Write SmolLM2-135M-Instruct as a Hugging Face directory, for peers that read only that form.

    python -m loadtest.bench.checkpoint FILE.gguf OUT_DIR    # needs the dev extra

The weights come from a Q4_1 GGUF (Apache-2.0), dequantised to bf16; Candela gets the same directory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def write_checkpoint(gguf: Path, out: Path) -> None:
    """Convert `gguf` into config.json, model.safetensors and tokenizer files under `out`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    _split_digits(out / "tokenizer.json")


def _split_digits(path: Path) -> None:
    """Put back what the conversion drops: the GGUF's pre-tokenizer takes digits one by one first."""
    spec = json.loads(path.read_text(encoding="utf-8"))
    digits = {"type": "Digits", "individual_digits": True}
    spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, spec["pre_tokenizer"]]}
    path.write_text(json.dumps(spec, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]), Path(sys.argv[2]))
