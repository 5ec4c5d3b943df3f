"use strict";
// What is shown comes whole from `data`; the past is kept here, so that the node pays nothing while nobody looks.
const PERIOD = 2000, POINTS = 150, LOG_LINES = 300;
const $ = (id) => document.getElementById(id);
const past = new Map();
let seen = null, open = null, failures = 0, silentSince = null, timer = null, logTurn = 0;

function make(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") node.textContent = value;
    else if (key === "class") node.className = value;
    else if (value !== undefined && value !== null) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
function drawn(tag, options) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(options)) node.setAttribute(key, value);
  return node;
}

// ---- words for figures

function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return `${n >= 100 || unit === 0 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}
const speed = (n) => (n === null || n === undefined ? "–" : `${bytes(n)}/s`);
function cores(n) {
  if (n === null || n === undefined) return "–";
  return n >= 1 ? `${n.toFixed(2)} cores` : `${Math.round(n * 1000)} m`;
}
function span(from, to) {
  const seconds = Math.max(0, Math.round((to - from) / 1000));
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h` : `${Math.floor(hours / 24)}d`;
}
const age = (text) => (text ? span(Date.parse(text), Date.parse(seen.now)) : "–");
function amount(text) {
  const found = /^(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|Ti|k|M|G|T)?$/.exec(text || "");
  if (!found) return null;
  const scale = { m: 1e-3, Ki: 1024, Mi: 1024 ** 2, Gi: 1024 ** 3, Ti: 1024 ** 4, k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
  return Number(found[1]) * (found[2] ? scale[found[2]] : 1);
}
function mood(word) {
  if (/^(Running|Completed|Succeeded)$/.test(word)) return "good";
  if (/^(Pending|ContainerCreating|PodInitializing|Init:\d|Terminating|Waiting|NotReady)/.test(word)) return "";
  return "bad";
}

// ---- the past

const perSecond = (now, before, key, seconds) =>
  before && now[key] !== null && before[key] !== null && now[key] >= before[key] ? (now[key] - before[key]) / seconds : null;

function remember(key, stats, at) {
  if (!stats) return;
  const figure = (value) => (value === undefined ? null : value);
  const network = stats.network || {};
  const disk = stats.fs || stats.rootfs || stats["ephemeral-storage"] || {};
  // Only a network whose main interface is called eth0 has figures of its own; others are the sum of theirs.
  const total = (field) => (network[field] === undefined && (network.interfaces || []).length
    ? network.interfaces.reduce((sum, it) => sum + (it[field] || 0), 0) : network[field]);
  const raw = {
    at,
    cpu: figure(stats.cpu && stats.cpu.usageCoreNanoSeconds),
    rx: figure(total("rxBytes")), tx: figure(total("txBytes")),
  };
  const line = past.get(key) || { points: [], raw: null };
  const seconds = line.raw ? (at - line.raw.at) / 1000 : 0;
  if (line.raw && seconds < 0.5) return;
  const rate = perSecond(raw, line.raw, "cpu", seconds);
  const told = stats.cpu && stats.cpu.usageNanoCores;
  line.points.push({
    at,
    cpu: rate !== null ? rate / 1e9 : told === undefined ? null : told / 1e9,
    memory: figure(stats.memory && stats.memory.workingSetBytes),
    rx: perSecond(raw, line.raw, "rx", seconds), tx: perSecond(raw, line.raw, "tx", seconds),
    disk: figure(disk.usedBytes), size: figure(disk.capacityBytes),
  });
  line.points.splice(0, line.points.length - POINTS);
  line.raw = raw;
  past.set(key, line);
}
const podKey = (uid) => `pod ${uid}`;
const containerKey = (uid, name) => `container ${uid} ${name}`;
function rememberAll() {
  const stats = seen.stats;
  if (!stats) return;
  const at = Date.now(), alive = new Set(["node"]);
  remember("node", stats.node, at);
  for (const pod of stats.pods || []) {
    const uid = pod.podRef.uid;
    alive.add(podKey(uid));
    remember(podKey(uid), pod, at);
    for (const container of pod.containers || []) {
      alive.add(containerKey(uid, container.name));
      remember(containerKey(uid, container.name), container, at);
    }
  }
  for (const key of past.keys()) if (!alive.has(key)) past.delete(key);
}
const points = (key) => (past.get(key) || { points: [] }).points;
function last(key, field) {
  const known = points(key);
  return known.length ? known[known.length - 1][field] : null;
}

// ---- charts

// A scale's end is a round number, so that the label beside it can be read at a glance.
const inTwos = (n) => 2 ** Math.ceil(Math.log2(Math.max(n, 1)));
function inTens(n) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(n, 1e-3)));
  return [1, 2, 5, 10].map((step) => step * unit).find((step) => step >= n) || 10 * unit;
}
const CHARTS = [
  { title: "CPU", fields: ["cpu"], words: cores, round: inTens, top: (limits) => limits.cpu },
  { title: "Memory", fields: ["memory"], words: bytes, round: inTwos, top: (limits) => limits.memory },
  { title: "Disk", fields: ["disk"], words: bytes, round: inTwos, top: (limits, known) => (known.length ? known[known.length - 1].size : null) },
  { title: "Network", fields: ["rx", "tx"], words: speed, round: inTwos, names: ["in", "out"], top: () => null },
];
function chart(kind, known, limits) {
  const caption = make("figcaption", {}, make("span", { text: kind.title }));
  const current = kind.fields.map((field) => (known.length ? known[known.length - 1][field] : null));
  const words = kind.names
    ? current.map((value, index) => `${kind.names[index]} ${kind.words(value)}`).join(" · ")
    : kind.words(current[0]);
  const value = make("strong", kind.names ? {} : { text: words });
  if (kind.names) current.forEach((it, index) => value.append(make("span", { class: index ? "key second" : "key", text: `${index ? "↑" : "↓"} ${kind.words(it)}` })));
  caption.append(value);
  const largest = Math.max(0, ...known.flatMap((point) => kind.fields.map((field) => point[field] || 0)));
  const limit = kind.top(limits, known);
  // A limit far above what is used would flatten the curve: then the curve has the room and the foot names the limit.
  const isNear = Boolean(limit) && largest > limit / 4;
  const ceiling = isNear ? Math.max(limit, largest) : kind.round(largest * 1.1);
  const box = drawn("svg", { viewBox: "0 0 300 64", preserveAspectRatio: "none", role: "img" });
  box.setAttribute("aria-label", `${kind.title}: ${words}${limit ? ` of ${kind.words(limit)}` : ""}`);
  for (const y of [1, 32]) box.append(drawn("line", { x1: 0, x2: 300, y1: y, y2: y, class: "grid" }));
  box.append(drawn("line", { x1: 0, x2: 300, y1: 63.5, y2: 63.5, class: "base" }));
  if (isNear) box.append(drawn("line", { x1: 0, x2: 300, y1: 63 - (limit / ceiling) * 62, y2: 63 - (limit / ceiling) * 62, class: "limit" }));
  const end = known.length ? known[known.length - 1].at : 0;
  // The curve fills the width from the first minute on; what is older than the window leaves on the left.
  const width = Math.min(PERIOD * POINTS, Math.max(60000, known.length ? end - known[0].at : 0));
  kind.fields.forEach((field, index) => {
    const curve = known.filter((point) => point[field] !== null)
      .map((point) => [300 - ((end - point.at) / width) * 300, 63 - (point[field] / ceiling) * 62]);
    if (curve.length < 2) return;
    const text = curve.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
    if (index === 0) box.append(drawn("polygon", { class: "area", points: `${curve[0][0].toFixed(1)},64 ${text} 300,64` }));
    box.append(drawn("polyline", { class: index ? "curve second" : "curve", points: text }));
  });
  const plot = make("div", { class: "plot" }, box, make("span", { class: "scale", text: kind.words(ceiling) }), make("span", { class: "scale zero", text: "0" }));
  const foot = make("div", { class: "foot" },
    make("span", { text: `${span(0, width)} ago` }),
    make("span", { text: known.length < 2 ? "gathering" : limit ? `of ${kind.words(limit)}` : largest ? `peak ${kind.words(largest)}` : "" }),
    make("span", { text: "now" }));
  return make("figure", { class: "chart" }, caption, plot, foot);
}
function charts(into, key, limits) {
  const known = points(key);
  // What is a difference of two looks has no point at the first one, and keeps its place.
  const raw = (past.get(key) || {}).raw || {};
  const has = (kind) => kind.fields.some((field) => typeof raw[field] === "number" || known.some((point) => point[field] !== null));
  const shown = CHARTS.filter(has).map((kind) => chart(kind, known, limits));
  into.replaceChildren(...(shown.length ? shown : [make("p", { class: "quiet empty", text: seen.stats ? "Nothing is measured while nothing runs." : "Figures cannot be read." })]));
}

// ---- the node

function condition(name) {
  const status = seen.node.status || {};
  return (status.conditions || []).find((it) => it.type === name);
}
function showNode() {
  const meta = seen.node.metadata || {}, status = seen.node.status || {}, info = status.nodeInfo || {};
  document.title = `${meta.name || "node"} · Ferrolet`;
  $("node-name").textContent = meta.name || "Node";
  const ready = condition("Ready"), faults = seen.checks.filter((check) => check.fault);
  const isReady = ready && ready.status === "True" && !faults.length;
  $("node-state").textContent = isReady ? "Ready" : "Not ready";
  $("node-state").className = `chip ${isReady ? "good" : "bad"}`;
  const facts = [info.kubeletVersion, info.containerRuntimeVersion, info.osImage, info.kernelVersion && `Linux ${info.kernelVersion}`, info.architecture];
  $("node-facts").textContent = facts.filter(Boolean).join(" · ");
  const limits = { cpu: amount((status.capacity || {}).cpu), memory: amount((status.capacity || {}).memory) };
  charts($("node-charts"), "node", limits);
  const capacity = Object.keys(status.capacity || {}).sort();
  $("amounts").replaceChildren(
    make("tr", {}, ...["Resource", "Capacity", "Allocatable"].map((text) => make("th", { scope: "col", text }))),
    ...capacity.map((name) => {
      const shown = (text) => (name === "cpu" || name === "pods" || amount(text) === null ? text || "–" : bytes(amount(text)));
      return make("tr", {}, make("td", { text: name }), make("td", { text: shown(status.capacity[name]) }),
        make("td", { text: shown((status.allocatable || {})[name]) }));
    }));
  $("conditions").replaceChildren(
    make("tr", {}, ...["Condition", "Status", "Why"].map((text) => make("th", { scope: "col", text }))),
    ...(status.conditions || []).map((it) => make("tr", {}, make("td", { text: it.type }), make("td", { text: it.status }), make("td", { text: it.message || it.reason || "" }))));
  const alerts = [
    ...faults.map((check) => [check.name, check.fault]),
    ...(ready && ready.status !== "True" ? [["Node is not ready", ready.message || ready.reason || ""]] : []),
    ...(status.conditions || []).filter((it) => it.type !== "Ready" && it.status === "True").map((it) => [it.type, it.message || ""]),
  ];
  $("alerts").hidden = !alerts.length;
  $("alerts").replaceChildren(...alerts.map(([reason, message]) => trouble(null, reason, message)));
}
function trouble(container, reason, message) {
  const words = [container ? `${container}: ` : "", message].join("");
  return make("p", { class: "trouble" }, make("strong", { text: reason }), ` ${words}`);
}

// ---- pods

// How rows can be ordered; the greatest or newest comes first, but for names.
const ORDERS = {
  name: (pod) => `${pod.namespace}/${pod.name}`,
  restarts: (pod) => -pod.nRestarts,
  age: (pod) => -Date.parse(pod.started || pod.created || 0),
  cpu: (pod) => -(last(podKey(pod.uid), "cpu") || 0),
  memory: (pod) => -(last(podKey(pod.uid), "memory") || 0),
};
function compare(one, other) {
  const by = ORDERS[$("order").value];
  if (!by) return Number(isWell(one)) - Number(isWell(other));
  const [left, right] = [by(one), by(other)];
  return left < right ? -1 : left > right ? 1 : 0;
}
// The order that is there already, asked for again, is given up.
function orderBy(name) {
  $("order").value = $("order").value === name ? "" : name;
  if (seen) showPods();
}
function showOrder() {
  for (const button of document.querySelectorAll(".sort")) {
    const cell = button.parentElement, isOurs = button.dataset.order === $("order").value;
    if (isOurs) cell.setAttribute("aria-sort", button.dataset.order === "name" ? "ascending" : "descending");
    else cell.removeAttribute("aria-sort");
  }
}

const isWell = (pod) => mood(pod.word) === "good" && !pod.why.length;
function showPods() {
  const wanted = $("filter").value.trim().toLowerCase();
  // Unless another order is chosen, what is not well comes first; equals stay in order, so that rows do not jump while nothing happens.
  const shown = seen.pods.filter((pod) => {
    const text = `${pod.namespace}/${pod.name} ${pod.word} ${pod.ip || ""}`.toLowerCase();
    return text.includes(wanted) && !($("unwell").checked && isWell(pod));
  }).sort(compare);
  showOrder();
  const unwell = seen.pods.filter((pod) => !isWell(pod)).length;
  const most = amount(((seen.node.status || {}).capacity || {}).pods);
  $("pod-count").textContent = `${seen.pods.length}${most ? ` of ${most}` : ""}${unwell ? `, ${unwell} not well` : ""}`;
  $("no-pods").hidden = shown.length > 0;
  $("no-pods").textContent = !seen.pods.length ? "No pods run here yet." : $("unwell").checked && !wanted ? "All pods are well." : "No pod fits the filter.";
  $("pods").hidden = !shown.length;
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.uid : null;
  const body = document.querySelector("#pods tbody");
  body.replaceChildren(...shown.map(podRow));
  if (focused) {
    const again = body.querySelector(`button[data-uid="${CSS.escape(focused)}"]`);
    if (again) again.focus();
  }
}
function podRow(pod) {
  const name = make("button", { class: "name", type: "button", "data-uid": pod.uid, text: pod.name });
  const first = make("td", {}, name, make("span", { class: "under", text: `${pod.namespace}${pod.isStatic ? " · static" : ""}` }));
  const state = make("td", {}, make("span", { class: `chip ${mood(pod.word)}`, text: pod.word }));
  if (pod.why.length) state.append(make("span", { class: "under", text: pod.why[0].message.slice(0, 160) }));
  const cell = (label, text, kind) => make("td", { "data-label": label, text, class: kind });
  const row = make("tr", {}, first, state, cell("ready", `${pod.nReady}/${pod.nContainers}`, "number"), cell("restarts", String(pod.nRestarts), "number"),
    cell("age", age(pod.started || pod.created)), cell("address", pod.ip || "–"),
    cell("cpu", cores(last(podKey(pod.uid), "cpu")), "number"), cell("memory", bytes(last(podKey(pod.uid), "memory")), "number"));
  // Marking text in a row is not asking for the pod.
  row.addEventListener("click", () => { if (!String(getSelection())) openPod(pod.uid); });
  return row;
}
// Whose an event is need not be said where all are the same one's.
function showEvents(list, events, whose) {
  const rows = events.map((event) => make("li", {},
    make("span", { class: "quiet", text: `${age(event.at)}${event.times > 1 ? ` ×${event.times}` : ""}` }),
    make("span", { class: event.isWarning ? "warning" : "", text: event.reason }),
    make("span", { class: "words" }, make("span", { class: "quiet", text: event.object === whose ? "" : `${event.object} ` }), event.message)));
  list.replaceChildren(...(rows.length ? rows : [make("li", { class: "quiet", text: "None since the agent started." })]));
}

// ---- one pod

function openPod(uid) {
  open = uid;
  for (const id of ["part", "log-of"]) $(id).replaceChildren();
  $("previous").checked = false;
  $("log").textContent = "";
  if (!$("pod").open) $("pod").showModal();
  location.hash = `pod=${uid}`;
  showPod();
  readLog();
}
function choices(select, wanted) {
  const before = select.value, known = [...select.options].map((option) => option.value);
  if (known.length === wanted.length && wanted.every(([value], index) => value === known[index])) return;
  select.replaceChildren(...wanted.map(([value, text]) => make("option", { value, text })));
  if (wanted.some(([value]) => value === before)) select.value = before;
}
function showPod() {
  if (!open) return;
  const pod = seen.pods.find((it) => it.uid === open);
  if (!pod) {
    $("pod-state").textContent = "gone";
    $("pod-state").className = "chip plain";
    return;
  }
  $("pod-name").textContent = `${pod.namespace}/${pod.name}`;
  $("pod-state").textContent = pod.word;
  $("pod-state").className = `chip ${mood(pod.word)}`;
  $("pod-facts").textContent = [pod.ip, pod.qos, `age ${age(pod.started || pod.created)}`, pod.isStatic ? "static" : "", pod.uid].filter(Boolean).join(" · ");
  $("pod-why").replaceChildren(...pod.why.map((it) => trouble(it.container, it.reason, it.message)));
  choices($("part"), [["", "the whole pod"], ...pod.containers.filter((it) => it.word === "Running").map((it) => [it.name, it.name])]);
  choices($("log-of"), pod.containers.map((it) => [it.name, it.name]));
  const part = $("part").value;
  const limits = (own) => ({ cpu: amount(own.limits.cpu), memory: amount(own.limits.memory) });
  const chosen = pod.containers.find((it) => it.name === part);
  charts($("pod-charts"), part ? containerKey(pod.uid, part) : podKey(pod.uid), limits(chosen || pod));
  const cell = (label, text, kind) => make("td", { "data-label": label, text, class: kind });
  document.querySelector("#containers tbody").replaceChildren(...pod.containers.map((it) => make("tr", {},
    make("td", {}, it.name, make("span", { class: "under", text: it.kind === "regular" ? "" : it.kind })),
    make("td", {}, make("span", { class: `chip ${mood(it.word)}`, text: it.word }), make("span", { class: "under", text: it.since ? `for ${age(it.since)}` : "" })),
    cell("restarts", String(it.restarts), "number"),
    cell("cpu", cores(last(containerKey(pod.uid, it.name), "cpu")), "number"), cell("memory", bytes(last(containerKey(pod.uid, it.name), "memory")), "number"),
    make("td", { "data-label": "image", class: "image", text: it.image }))));
  const whose = `${pod.namespace}/${pod.name}`;
  showEvents($("pod-events"), seen.events.filter((event) => event.object === whose), whose);
}
async function readLog() {
  const pod = seen && seen.pods.find((it) => it.uid === open), name = $("log-of").value;
  $("log-bar").hidden = $("log").hidden = !seen || !seen.hasLogs;
  if (!pod || !name || !seen.hasLogs) return;
  const turn = (logTurn += 1), parts = [pod.namespace, pod.name, name].map(encodeURIComponent).join("/");
  const previous = $("previous").checked ? "&previous=true" : "";
  let text;
  try {
    const answer = await fetch(`logs/${parts}?tailLines=${LOG_LINES}&limitBytes=262144&timestamps=false${previous}`);
    text = await answer.text();
    if (!answer.ok) text = `(${text.trim()})`;
  } catch {
    return;
  }
  if (turn !== logTurn || !$("pod").open) return;
  const box = $("log"), atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
  const shown = text || "(nothing was written)";
  if (box.textContent !== shown) {
    box.textContent = shown;
    if (atEnd) box.scrollTop = box.scrollHeight;
  }
}

// ---- the loop

// The state is read aloud when it changes; the time beside it changes all the time and is not.
function tell(state, time) {
  if ($("link").textContent !== state) $("link").textContent = state;
  $("link").className = state === "live" ? "quiet" : "lost";
  $("link-time").textContent = time;
}
async function look() {
  clearTimeout(timer);
  if (document.visibilityState === "hidden") return;
  try {
    const answer = await fetch("data");
    if (!answer.ok) throw new Error(`the agent answers ${answer.status}`);
    seen = await answer.json();
    failures = 0;
    silentSince = null;
    rememberAll();
    showNode();
    showPods();
    showEvents($("events"), seen.events);
    if (open) { showPod(); readLog(); }
    else if (location.hash.startsWith("#pod=")) openPod(location.hash.slice(5));
    tell("live", new Date().toLocaleTimeString());
  } catch (error) {
    failures += 1;
    silentSince = silentSince || Date.now();
    tell(`no answer (${error.message})`, `for ${span(silentSince, Date.now())}`);
  }
  timer = setTimeout(look, Math.min(PERIOD * 2 ** Math.min(failures, 4), 30000));
}
function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
  try { if (name) localStorage.setItem("theme", name); } catch { /* A browser without storage forgets. */ }
}
try { theme(localStorage.getItem("theme")); } catch { /* The system's choice then. */ }
$("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
  theme(now === "dark" ? "light" : "dark");
});
$("filter").addEventListener("input", () => seen && showPods());
$("unwell").addEventListener("change", () => seen && showPods());
$("order").addEventListener("change", () => seen && showPods());
for (const button of document.querySelectorAll(".sort")) button.addEventListener("click", () => orderBy(button.dataset.order));
// Where there is room for it, nobody has to ask.
$("details").open = matchMedia("(min-width: 900px)").matches;
$("part").addEventListener("change", () => seen && showPod());
for (const id of ["log-of", "previous"]) $(id).addEventListener("change", () => { $("log").textContent = ""; readLog(); });
$("close").addEventListener("click", () => $("pod").close());
$("pod").addEventListener("close", () => {
  const uid = open;
  open = null;
  history.replaceState(null, "", location.pathname);
  const row = document.querySelector(`button[data-uid="${CSS.escape(uid || "")}"]`);
  if (row) row.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT)$/.test(document.activeElement.tagName) && !$("pod").open) {
    event.preventDefault();
    $("filter").focus();
  }
});
document.addEventListener("visibilitychange", look);
look();
