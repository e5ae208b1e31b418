"use strict";
// One stream in, this page out. Everything is set as text or as a style property: nothing is ever parsed as HTML.
const $ = (id) => document.getElementById(id);
const STAGES = ["read", "parse", "guard", "tokenise", "wait", "prefill", "decode", "frame", "write"];
const CALM = matchMedia("(prefers-reduced-motion: reduce)");
const SECONDS = 60;
let service = null, moment = null, minute = null, budgets = [], columns = {}, came = 0, paused = false, chosen = "first_token";

// Numbers as people read them.
const time = (s) => !isFinite(s) ? "–" : s < 0.001 ? `${Math.round(s * 1e6)} µs` : s < 0.1 ? `${+(s * 1e3).toPrecision(2)} ms`
  : s < 1 ? `${Math.round(s * 1e3)} ms` : s < 10 ? `${s.toFixed(1)} s` : `${Math.round(s)} s`;
const count = (n) => n >= 1e5 ? `${Math.round(n / 1e3)} k` : String(Math.round(n));
const total = (parts) => Object.values(parts).reduce((sum, one) => sum + one, 0);

// Percentages with one decimal that sum to exactly 100: largest remainders get what rounding lost.
function shares(parts) {
  const names = Object.keys(parts), whole = total(parts);
  if (!whole) return null;
  const exact = names.map((name) => parts[name] / whole * 1000), floors = exact.map(Math.floor);
  const left = 1000 - floors.reduce((sum, one) => sum + one, 0);
  const order = exact.map((one, i) => [one - floors[i], i]).sort((a, b) => b[0] - a[0]);
  for (let i = 0; i < left; i++) floors[order[i][1]]++;
  return Object.fromEntries(names.map((name, i) => [name, floors[i] / 10]));
}

function quantile(counts, bounds, q) {
  const whole = counts.reduce((sum, one) => sum + one, 0);
  let seen = 0;
  for (let i = 0; i < counts.length; i++) {
    if (counts[i] && seen + counts[i] >= q * whole) {
      if (i >= bounds.length) return bounds[bounds.length - 1];
      const low = i ? bounds[i - 1] : 0;
      return low + (bounds[i] - low) * (q * whole - seen) / counts[i];
    }
    seen += counts[i];
  }
  return NaN;
}

function node(tag, text, classes) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

// A table's rows by key, made once and then only changed, so that a reader's selection stays.
function row(table, key, label) {
  const body = table.tBodies[0] || table.createTBody();
  for (const one of body.rows) if (one.dataset.key === key) return one;
  const made = body.insertRow(), head = node("th", label);
  made.dataset.key = key;
  head.scope = "row";
  made.append(head);
  return made;
}
function cells(made, values) {
  values.forEach(([text, classes], i) => {
    const cell = made.cells[i + 1] || made.insertCell();
    if (cell.textContent !== text) cell.textContent = text;
    cell.className = classes || "";
  });
}
function keep(table, keys) {
  const body = table.tBodies[0] || table.createTBody();
  for (const one of [...body.rows]) if (!keys.includes(one.dataset.key)) one.remove();
  const known = [...body.rows].map((one) => one.dataset.key), wanted = keys.filter((key) => known.includes(key));
  if (wanted.some((key, i) => key !== known[i])) for (const key of wanted) body.append([...body.rows].find((one) => one.dataset.key === key));
}

function bar(id, parts, colours, unit) {
  const share = shares(parts), strip = $(`b-${id}`), legend = $(`l-${id}`);
  Object.keys(parts).forEach((name, i) => {
    const piece = strip.children[i] || strip.appendChild(node("span"));
    piece.style.width = share ? `${share[name]}%` : "0";
    piece.style.background = `var(${colours[i]})`;
    piece.title = name;
    const line = row(legend, name, "");
    if (!line.cells[0].firstChild) {
      const swatch = node("i", "", "swatch");
      swatch.style.background = `var(${colours[i]})`;
      line.cells[0].append(swatch, name);
    }
    cells(line, [[share ? `${share[name].toFixed(1)} %` : "–"], [time(parts[name] / 1e6), "quiet more"]]);
  });
  strip.setAttribute("aria-label", share ? Object.entries(share).map(([n, s]) => `${n} ${s} %`).join(", ") : "nothing yet");
  $(`t-${id}`).textContent = share ? `${time(total(parts) / 1e6)} = 100 %` : unit;
}

function showMinute() {
  const m = minute, bounds = service.bounds_s, first = m.histograms.first_token;
  const requests = total(m.finished), refused = (m.refused.slots_busy || 0) + (m.refused.beyond_horizon || 0);
  $("f-requests").textContent = count(requests * 60 / m.seconds);
  $("f-tokens").textContent = count(m.tokens / m.seconds);
  $("f-p50").textContent = time(quantile(first, bounds.first_token, 0.5));
  $("f-p99").textContent = time(quantile(first, bounds.first_token, 0.99));
  $("f-refused").replaceChildren(requests + refused ? `${(100 * refused / (requests + refused)).toFixed(1)} %` : "–");
  bar("wall", m.wall_us, ["--s6", "--s2", "--s4"], "");
  bar("stages", m.stages_us, STAGES.map((_, i) => `--s${i}`), "no request has ended yet");
  showCounts();
  showPrograms();
  showTenants();
}

function showCounts() {
  const m = minute, codes = Object.keys(m.refused).filter((code) => m.refused[code]);
  keep($("refused"), codes.length ? codes : ["none"]);
  for (const code of codes) cells(row($("refused"), code, code.replaceAll("_", " ")), [[count(m.refused[code])]]);
  if (!codes.length) cells(row($("refused"), "none", "nobody was refused"), [["0", "quiet"]]);
  const words = { kept: "came and were served", early: "came early, told again", late: "came too late", no_show: "did not come", broken: "came and were not served" };
  for (const [name, text] of Object.entries(words)) {
    const n = m.bookings[name] || 0;
    cells(row($("bookings"), name, text), [[count(n), n ? "" : "quiet"]]);
  }
  const came = ["kept", "early", "late", "broken"].reduce((sum, name) => sum + (m.bookings[name] || 0), 0);
  const sent = (m.refused.slots_busy || 0) - (m.bookings.early || 0);
  cells(row($("bookings"), "served", "of those that came, served"), [[came ? `${(100 * m.bookings.kept / came).toFixed(1)} %` : "–", came ? "" : "quiet"]]);
  cells(row($("bookings"), "ratio", "retries for a refusal"), [[sent > 0 ? (came / sent).toFixed(2) : "–", sent > 0 ? "" : "quiet"]]);
  const kept = m.deadlines.true || 0, missed = m.deadlines.false || 0;
  const rows = [["kept", "deadlines kept", kept], ["missed", "deadlines missed", missed],
    ["prefill", "clients left before a token", m.abandoned.prefill || 0], ["decode", "clients left during a reply", m.abandoned.decode || 0]];
  for (const [key, text, n] of rows) cells(row($("promises"), key, text), [[count(n), n ? "" : "quiet"]]);
}

// A row with a bar below its name; `share` of it is filled, in per cent.
function metered(table, key, label, share, classes, values) {
  const line = row(table, key, label);
  let meter = line.cells[0].querySelector(".meter");
  if (!meter) {
    meter = node("span");
    meter.append(node("span"));
    line.cells[0].append(meter);
  }
  meter.className = `meter ${classes}`;
  meter.firstChild.style.width = `${Math.min(100, share)}%`;
  cells(line, values);
}

const WHO = { _idle: "idle", _anyone: "without a key", _other: "all others" };
function showTenants() {
  const spent = minute.tenants_us || {}, whole = total(spent), told = Object.keys(spent).filter((name) => spent[name]);
  $("s-tenants").hidden = !told.some((name) => !name.startsWith("_")) && !budgets.length;
  const first = told.sort((a, b) => (a === "_idle") - (b === "_idle") || spent[b] - spent[a]), names = first.slice(0, 12);
  if (first.length > 12) names[11] = "_idle";
  keep($("tenants"), names);
  for (const name of names) {
    const share = whole ? 100 * spent[name] / whole : 0;
    metered($("tenants"), name, WHO[name] || name, share, name === "_idle" ? "other" : "", [[`${share.toFixed(1)} %`], [time(spent[name] / 1e6), "quiet"]]);
  }
}

const LIMITS = { requests_per_minute: "requests a minute", tokens_per_minute: "tokens a minute", concurrent: "at once", compute_us_per_day: "compute today" };
function showBudgets() {
  $("s-budgets").hidden = !budgets.length;
  keep($("budgets"), budgets.map(([name, limit]) => `${name} ${limit}`));
  for (const [name, limit, used, most] of budgets) {
    const share = 100 * used / most, say = limit === "compute_us_per_day" ? (us) => time(us / 1e6) : count;
    metered($("budgets"), `${name} ${limit}`, `${name}, ${LIMITS[limit] || limit}`, share, share >= 90 ? "near" : "", [[`${say(used)} of ${say(most)}`]]);
  }
  const full = budgets.filter(([, , used, most]) => used >= most).length;
  $("full").textContent = full ? `${full} used up` : "";
  $("full").className = full ? "tag bad" : "tag";
}

function showPrograms() {
  const steps = minute.steps, whole = total(steps), names = Object.keys(steps).filter((n) => steps[n]).sort((a, b) => steps[b] - steps[a]);
  const table = $("programs");
  keep(table, names.length ? names : ["none"]);
  if (!names.length) cells(row(table, "none", "no step in the last minute"), []);
  for (const name of names) {
    const share = 100 * steps[name] / whole, classes = name === service.fallback ? "other" : "";
    metered(table, name, name, share, classes, [[`${share.toFixed(1)} %`], [`${count(steps[name])} steps`, "quiet"]]);
  }
  const hits = whole ? 100 * (1 - (steps[service.fallback] || 0) / whole) : NaN;
  $("hits").textContent = whole ? `${hits.toFixed(1)} % hits` : "";
  $("hits").className = hits < 85 ? "tag bad" : "tag";
}

function showMoment() {
  const free = node("small", ` of ${service.slots}`);
  $("f-free").replaceChildren(String(moment.free), free);
  $("feasible").textContent = moment.feasible ? `every promise can be kept, ${moment.bookings.length} booked` : "a promise cannot be kept";
  $("feasible").className = moment.feasible ? "tag" : "tag bad";
  $("calendar").setAttribute("aria-label", `${moment.running} of ${service.slots} slots run, ${moment.bookings.length} starts are booked`);
}

// Drawing. Colours are those of the style sheet, so that light and dark need nothing here.
function sheet(canvas) {
  const scale = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== Math.round(w * scale) || canvas.height !== Math.round(h * scale)) {
    canvas.width = Math.round(w * scale);
    canvas.height = Math.round(h * scale);
  }
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, w, h);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  return { pen, w, h, colour: (name) => style.getPropertyValue(name).trim() };
}
function block(pen, x, y, w, h, r) {
  pen.beginPath();
  pen.roundRect(x, y, Math.max(w, 2), h, Math.min(r, h / 2));
}

let horizon = 4000;
function drawCalendar() {
  if (!moment) return;
  const { pen, w, h, colour } = sheet($("calendar")), slots = moment.slots.length, aged = paused ? 0 : performance.now() - came;
  const left = 26, top = 2, foot = 20, lane = (h - top - foot) / slots, thick = Math.max(2, Math.min(lane * 0.72, 22));
  const ends = [...moment.slots.map((s) => s[2] || 0), ...moment.bookings.map((b) => b[2])];
  const wanted = [1000, 2000, 4000, 10000, 20000, 40000, 60000, 120000, 300000].find((one) => one >= Math.max(...ends) * 0.9) || 600000;
  horizon += (wanted - horizon) * (CALM.matches ? 1 : 0.08);
  const past = horizon * 0.35, x = (ms) => left + (ms + past) / (past + horizon) * (w - left);
  pen.textAlign = "center";
  const grid = [100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000].find((one) => (past + horizon) / one <= (w < 500 ? 6 : 12)) || 120000;
  for (let t = -Math.floor(past / grid) * grid; t <= horizon; t += grid) {
    pen.fillStyle = colour("--faint");
    pen.fillRect(Math.round(x(t)), top, 1, h - top - foot);
    pen.fillStyle = colour("--soft");
    const place = x(t);
    if (place < w - 18 && place > left + 14) pen.fillText(t === 0 ? "now" : `${t > 0 ? "+" : "−"}${Math.abs(t / 1000)} s`, place, h - foot / 2 + 2);
  }
  moment.slots.forEach(([state, since, end], i) => {
    const y = top + lane * i + (lane - thick) / 2;
    pen.fillStyle = colour("--soft");
    pen.textAlign = "right";
    if (lane >= 10 || i % Math.ceil(10 / lane) === 0) pen.fillText(String(i + 1), left - 8, y + thick / 2);
    pen.fillStyle = colour("--faint");
    block(pen, left, y, w - left, thick, 4);
    pen.fill();
    if (state === "free") return;
    const from = Math.max(left, x((since || 0) - aged)), here = x(0), until = Math.min(w, x(Math.max(end - aged, 0)));
    pen.fillStyle = colour("--accent");
    pen.globalAlpha = 0.28;
    block(pen, from, y, Math.max(until, here) - from, thick, 4);
    pen.fill();
    pen.globalAlpha = state === "running" ? 1 : 0.5;
    block(pen, from, y, here - from, thick, 4);
    pen.fill();
    pen.globalAlpha = 1;
  });
  for (const [slot, start, end, present, soft] of moment.bookings) {
    const y = top + lane * slot + (lane - thick) / 2, from = Math.max(left, x(start - aged)), to = Math.min(w, x(end - aged));
    if (to <= left || from >= w) continue;
    block(pen, from + 1, y + 1, to - from - 2, thick - 2, 3);
    pen.fillStyle = present ? colour("--warm") : colour("--card");
    pen.globalAlpha = present ? 1 : 0.6;
    pen.fill();
    pen.globalAlpha = 1;
    pen.strokeStyle = colour("--warm");
    pen.lineWidth = 1.5;
    pen.setLineDash(soft ? [3, 3] : []);
    pen.stroke();
    pen.setLineDash([]);
  }
  pen.fillStyle = colour("--ink");
  pen.fillRect(Math.round(x(0)), top, 1.5, h - top - foot);
}

function mix(a, b, t) {
  const part = (hex, i) => parseInt(hex.slice(1 + 2 * i, 3 + 2 * i), 16);
  return `rgb(${[0, 1, 2].map((i) => Math.round(part(a, i) + (part(b, i) - part(a, i)) * t)).join(" ")})`;
}
function drawHeat() {
  const data = columns[chosen];
  if (!data || !service) return;
  const bounds = service.bounds_s[chosen], whole = bounds.map(() => 0).concat(0);
  let most = 1;
  for (const column of data) column.forEach((n, i) => { whole[i] += n; most = Math.max(most, n); });
  const used = whole.map((n, i) => n ? i : -1).filter((i) => i >= 0);
  let low = Math.max(0, (used[0] ?? 4) - 1), high = Math.min(bounds.length, (used[used.length - 1] ?? 9) + 1);
  while (high - low < 5 && (low || high < bounds.length)) { low = Math.max(0, low - 1); high = Math.min(bounds.length, high + 1); }
  const { pen, w, h, colour } = sheet($("heat")), left = 64, foot = 20, rows = high - low + 1;
  const tall = (h - foot) / rows, wide = (w - left) / SECONDS, from = colour("--h0"), to = colour("--h1");
  for (let r = 0; r < rows; r++) {
    const bucket = high - r, y = r * tall;
    pen.fillStyle = colour("--soft");
    pen.textAlign = "right";
    const label = bucket < bounds.length ? `≤ ${time(bounds[bucket])}` : `> ${time(bounds[bounds.length - 1])}`;
    if (tall >= 12 || r % 2 === 0) pen.fillText(label, left - 8, y + tall / 2);
    for (let c = 0; c < SECONDS; c++) {
      const n = data[data.length - SECONDS + c]?.[bucket] || 0;
      pen.fillStyle = mix(from, to, n ? 0.18 + 0.82 * Math.log1p(n) / Math.log1p(most) : 0);
      pen.fillRect(left + c * wide, y, wide > 6 ? wide - 1 : wide + 0.3, Math.max(1, tall - 1));
    }
  }
  pen.fillStyle = colour("--soft");
  pen.textAlign = "center";
  for (const s of [60, 45, 30, 15]) pen.fillText(`−${s} s`, left + (SECONDS - s) * wide + (s === 60 ? 14 : 0), h - foot / 2 + 2);
  pen.textAlign = "right";
  pen.fillText("now", w, h - foot / 2 + 2);
  const sum = whole.reduce((a, b) => a + b, 0), p = (q) => time(quantile(whole, bounds, q));
  const note = sum ? `P50 ${p(0.5)}, P90 ${p(0.9)}, P99 ${p(0.99)}, over ${count(sum)}; read off the buckets` : "nothing in the last minute";
  $("heat-note").textContent = note;
  $("heat").setAttribute("aria-label", `Latency heat map: ${note}`);
}

let drawn = 0;
function frame(now) {
  // Ten pictures a second are as calm as sixty, and cost a phone a sixth.
  if (!paused && !document.hidden && now - drawn > 95) { drawn = now; drawCalendar(); }
  if (!CALM.matches) requestAnimationFrame(frame);
}

function told(state, text) {
  $("dot").className = `dot ${state}`;
  if ($("state").textContent !== text) $("state").textContent = text;
}
function listen() {
  const stream = new EventSource("/live"), on = (name, take) => stream.addEventListener(name, (e) => { const data = JSON.parse(e.data); take(data); });
  on("service", (data) => {
    service = data;
    columns = {};
    $("what").textContent = `${data.model} on ${data.engine}, ${data.slots} slots of ${data.slot_tokens} tokens`;
    $("release").textContent = `zerolayer ${data.release}`;
    told("live", paused ? "paused" : "live");
  });
  on("columns", (data) => {
    for (const [name, more] of Object.entries(data)) columns[name] = [...(columns[name] || []), ...more].slice(-SECONDS);
    if (!paused) drawHeat();
  });
  on("minute", (data) => { if (!paused) { minute = data; showMinute(); } });
  on("budgets", (data) => { if (!paused) { budgets = data; showBudgets(); } });
  on("moment", (data) => {
    if (paused) return;
    moment = data;
    came = performance.now();
    showMoment();
    if (CALM.matches) drawCalendar();
  });
  stream.onerror = () => told("lost", "connection lost, trying again");
}

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").textContent = paused ? "Resume" : "Pause";
  $("pause").setAttribute("aria-pressed", String(paused));
  told("live", paused ? "paused" : "live");
});
for (const input of document.getElementsByName("heat")) {
  input.addEventListener("change", () => { chosen = input.value; drawHeat(); });
  if (input.checked) chosen = input.value;
}
addEventListener("resize", () => { drawCalendar(); drawHeat(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawCalendar(); drawHeat(); });
listen();
requestAnimationFrame(frame);
