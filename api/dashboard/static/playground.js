// A chat that streams from /v1/chat/completions under this page's session.
"use strict";
(() => {
  const root = document.querySelector("[data-chat]");
  if (!root) return;
  const find = (name) => root.querySelector(`[data-chat-${name}]`);
  const settings = find("settings");
  const form = find("form");
  const csrf = document.querySelector('meta[name="csrf-token"]').content;
  const turns = [];
  let running = null;

  function show(kind, who, text) {
    const item = document.createElement("li");
    item.className = `turn turn-${kind}`;
    const name = document.createElement("span");
    name.className = "turn-who";
    name.textContent = who;
    const body = document.createElement("div");
    body.className = "turn-text";
    body.textContent = text;
    const facts = document.createElement("span");
    facts.className = "turn-facts";
    item.append(name, body, facts);
    find("turns").append(item);
    find("hint").hidden = true;
    item.scrollIntoView({ block: "end" });
    return { item, body, facts };
  }

  function request() {
    const messages = settings.system.value.trim() ? [{ role: "system", content: settings.system.value }] : [];
    const body = {
      model: settings.model.value,
      messages: messages.concat(turns),
      stream: true,
      stream_options: { include_usage: true },
    };
    if (settings.temperature.value) body.temperature = Number(settings.temperature.value);
    if (settings.max_tokens.value) body.max_completion_tokens = Number(settings.max_tokens.value);
    return body;
  }

  async function* events(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      yield* blocks;
    }
  }

  async function ask(turn) {
    const began = performance.now();
    let firstAt = null;
    let usage = null;
    const answer = await fetch("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json", "x-csrf-token": csrf },
      body: JSON.stringify(request()),
      signal: running.signal,
    });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    for await (const block of events(answer)) {
      if (block.startsWith(":")) { find("status").textContent = `${block.slice(1).trim()} …`; continue; }
      const data = block.replace(/^data: /, "");
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.usage) usage = chunk.usage;
      const text = chunk.choices?.[0]?.delta?.content;
      if (!text) continue;
      if (firstAt === null) { firstAt = performance.now(); find("status").textContent = ""; }
      turn.body.textContent += text;
      turn.item.scrollIntoView({ block: "end" });
    }
    const first = firstAt === null ? "" : `first token ${((firstAt - began) / 1000).toFixed(2)} s`;
    const seconds = firstAt === null ? 0 : (performance.now() - firstAt) / 1000;
    const rate = usage && seconds > 0 ? `${((usage.completion_tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
    const counts = usage ? `${usage.prompt_tokens} + ${usage.completion_tokens} tokens` : "";
    turn.facts.textContent = [counts, first, rate].filter(Boolean).join(" · ");
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = form.prompt.value.trim();
    if (!text || running) return;
    form.prompt.value = "";
    show("user", "You", text);
    turns.push({ role: "user", content: text });
    const turn = show("busy", settings.model.value, "");
    running = new AbortController();
    find("send").disabled = true;
    find("stop").hidden = false;
    find("status").textContent = "sending …";
    try {
      await ask(turn);
    } catch (error) {
      if (error.name === "AbortError") turn.facts.textContent = "stopped; what was generated is billed";
      else { turn.item.classList.add("turn-problem"); turn.body.textContent += turn.body.textContent ? `\n${error.message}` : error.message; }
    }
    if (turn.item.classList.contains("turn-problem")) turns.pop();
    else turns.push({ role: "assistant", content: turn.body.textContent });
    turn.item.classList.remove("turn-busy");
    running = null;
    find("send").disabled = false;
    find("stop").hidden = true;
    find("status").textContent = "";
    form.prompt.focus();
  });

  form.prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
  });
  find("stop").addEventListener("click", () => running?.abort());
  find("clear").addEventListener("click", () => {
    running?.abort();
    turns.length = 0;
    find("turns").replaceChildren();
    find("hint").hidden = false;
  });
})();
