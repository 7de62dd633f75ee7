// A running job's progress, from the same event stream that `candela job watch` reads.
"use strict";
(() => {
  const root = document.querySelector("[data-job]");
  if (!root || root.dataset.over === "1") return;
  const find = (name) => document.querySelector(`[data-job-${name}]`);
  const source = new EventSource(`/api/v1/jobs/${root.dataset.job}/events?after=${root.dataset.after}`);
  const endings = ["succeeded", "failed", "cancelled"];

  function line(event, text) {
    const log = find("log");
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const item = document.createElement("li");
    item.className = `log-${event.kind}`;
    const time = document.createElement("time");
    time.textContent = new Date(event.at * 1000).toISOString().slice(11, 19);
    const tag = document.createElement("span");
    tag.className = "tag";
    tag.textContent = event.kind;
    item.append(time, " ", tag, ` ${text}`);
    log.append(item);
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }

  source.addEventListener("progress", (message) => {
    const event = JSON.parse(message.data);
    const { stage, fraction, message: note } = event.body;
    find("progress").value = fraction;
    find("percent").textContent = `${Math.round(fraction * 100)} %`;
    find("stage").textContent = stage;
    find("message").textContent = note || "";
    line(event, `${stage} · ${Math.round(fraction * 100)} % ${note || ""}`);
  });

  source.addEventListener("state", (message) => {
    const event = JSON.parse(message.data);
    const { state, ...facts } = event.body;
    const pill = find("state");
    pill.textContent = state;
    pill.className = `pill pill-${state}`;
    find("attempt").textContent = event.attempt;
    line(event, `${state} ${Object.entries(facts).map(([k, v]) => `${k}=${v}`).join(" ")}`);
    if (endings.includes(state)) {
      source.close();
      location.reload();
    }
  });

  source.addEventListener("log", (message) => {
    const event = JSON.parse(message.data);
    line(event, Object.entries(event.body).map(([k, v]) => (k === "message" ? v : `${k}=${v}`)).join(" "));
  });
})();
