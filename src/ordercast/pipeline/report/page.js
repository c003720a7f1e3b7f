"use strict";
// Draws the report from the JSON in the page. Every text of a trace goes in as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  const COLOURS = 10;
  const FLOOR = 1e4; // ns: where the axis of a distribution begins at the latest; what is faster stands there
  const SVG = "http://www.w3.org/2000/svg";

  // Elements. ---------------------------------------------------------------------------------------------------------

  const put = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "text") node.textContent = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value);
    }
    for (const child of [].concat(children || [])) if (child) node.append(child);
    return node;
  };
  const el = (name, attributes, children) => put(document.createElement(name), attributes, children);
  const svg = (name, attributes, children) => put(document.createElementNS(SVG, name), attributes, children);
  const colour = (index) => `var(--c${index % COLOURS})`;
  const card = (title, about, id) => {
    const box = el("section", { class: "card", id }, [el("h2", { text: title }), about && el("p", { class: "about", text: about })]);
    return box;
  };

  // Numbers. ----------------------------------------------------------------------------------------------------------

  const grouped = (value) => value.toLocaleString("en-US");
  const short = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size >= 1e9) return `${trim(value / 1e9)}G`;
    if (size >= 1e6) return `${trim(value / 1e6)}M`;
    if (size >= 1e4) return `${trim(value / 1e3)}k`;
    if (size >= 100 || Number.isInteger(value)) return grouped(Math.round(value));
    return trim(value);
  };
  const trim = (value) => String(Number(value.toPrecision(3)));
  const time = (ns) => {
    if (ns === null || ns === undefined) return "–";
    const size = Math.abs(ns);
    if (size === 0) return "0";
    if (size < 1e3) return `${trim(ns)} ns`;
    if (size < 1e6) return `${trim(ns / 1e3)} µs`;
    if (size < 1e9) return `${trim(ns / 1e6)} ms`;
    return `${trim(ns / 1e9)} s`;
  };
  const seconds = (value, step) => {
    const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step || 1) - 1e-9)));
    return value.toFixed(digits);
  };
  const ticks = (low, high, wanted) => {
    const raw = (high - low) / Math.max(1, wanted);
    const power = 10 ** Math.floor(Math.log10(raw || 1));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw) || raw || 1;
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-6 ? 0 : at);
    return { step, found };
  };
  const decades = (low, high) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) found.push(10 ** power);
    return found;
  };

  // The tip at the pointer. -------------------------------------------------------------------------------------------

  const tip = el("div", { class: "tip", hidden: "" });
  document.body.append(tip);
  const showTip = (event, title, rows) => {
    tip.replaceChildren(el("b", { text: title }));
    for (const [name, value, fill] of rows) {
      const left = el("span", {}, [fill && el("i", { style: `background:${fill}` }), document.createTextNode(name)]);
      tip.append(el("div", {}, [left, el("span", { text: value })]));
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 12, innerHeight - box.height - 4))}px`;
  };
  const hideTip = () => { tip.hidden = true; };

  // A figure that is drawn again when its width changes. --------------------------------------------------------------

  const figure = (draw) => {
    const box = el("figure");
    let width = 0;
    const again = () => { box.replaceChildren(draw(Math.max(320, width || 900))); };
    new ResizeObserver((entries) => {
      const now = Math.round(entries[0].contentRect.width);
      if (now && now !== width) { width = now; again(); }
    }).observe(box);
    again();
    box.again = again;
    return box;
  };

  const legend = (series, onToggle) => {
    const box = el("div", { class: "legend" });
    for (const one of series) {
      const key = el("button", { class: "key", type: "button", "aria-pressed": "true", title: "show or hide" }, [
        el("i", { style: `background:${one.colour};border-color:${one.colour}`, class: one.dash ? "dash" : null }),
        document.createTextNode(one.name),
      ]);
      key.addEventListener("click", () => {
        one.hidden = !one.hidden;
        key.setAttribute("aria-pressed", String(!one.hidden));
        onToggle();
      });
      box.append(key);
    }
    return box;
  };

  // Curves over x. `series`: {name, colour, dash, points: [[x, y or null]]}; y on a line or a log scale. ----------------

  const lineChart = (options) => {
    const { series, marks = [], height = 230, xLabel, yLabel, yLog, xLog, yFormat = short, xFormat, yMax } = options;
    const shown = () => series.filter((one) => !one.hidden);
    const draw = (width) => {
      const pad = { left: 74, right: 14, top: marks.length ? 24 : 10, bottom: 38 };
      const inner = { width: width - pad.left - pad.right, height: height - pad.top - pad.bottom };
      const all = shown().flatMap((one) => one.points.filter((point) => point[1] !== null));
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${yLabel} over ${xLabel}` });
      if (!all.length) {
        root.append(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle", text: "nothing to draw" }));
        return root;
      }
      let [lowX, highX] = options.xRange || [Math.min(...all.map((p) => p[0])), Math.max(...all.map((p) => p[0]))];
      if (xLog) { const exact = decades(Math.max(lowX, FLOOR), Math.max(highX, FLOOR)); lowX = exact[0]; highX = exact[exact.length - 1]; }
      if (highX <= lowX) highX = lowX + 1;
      const positive = all.map((p) => p[1]).filter((value) => value > 0);
      let lowY = 0, highY = yMax || Math.max(...all.map((p) => p[1])) * 1.06 || 1;
      if (yLog) {
        const exact = decades(positive.length ? Math.min(...positive) : 1, positive.length ? Math.max(...positive) : 10);
        lowY = exact[0]; highY = exact[exact.length - 1] === exact[0] ? exact[0] * 10 : exact[exact.length - 1];
      }
      const spanX = (value) => (xLog ? Math.log10(Math.max(value, lowX) / lowX) / Math.log10(highX / lowX) : (value - lowX) / (highX - lowX));
      const spanY = (value) => (yLog ? Math.log10(Math.max(value, lowY) / lowY) / Math.log10(highY / lowY) : (value - lowY) / (highY - lowY));
      const X = (value) => pad.left + spanX(value) * inner.width;
      const Y = (value) => pad.top + (1 - spanY(value)) * inner.height;

      const yTicks = yLog ? decades(lowY, highY) : ticks(lowY, highY, 5).found;
      for (const value of yTicks) {
        root.append(svg("line", { class: "grid", x1: pad.left, x2: width - pad.right, y1: Y(value), y2: Y(value) }));
        root.append(svg("text", { x: pad.left - 8, y: Y(value) + 4, "text-anchor": "end", text: yFormat(value) }));
      }
      const across = xLog ? { found: decades(lowX, highX), step: 1 } : ticks(lowX, highX, Math.max(3, Math.floor(inner.width / 90)));
      for (const value of across.found) {
        root.append(svg("line", { class: "grid", x1: X(value), x2: X(value), y1: pad.top, y2: pad.top + inner.height }));
        root.append(svg("text", { x: X(value), y: height - pad.bottom + 16, "text-anchor": "middle", text: xFormat ? xFormat(value) : seconds(value, across.step) }));
      }
      root.append(svg("line", { class: "base", x1: pad.left, x2: width - pad.right, y1: pad.top + inner.height, y2: pad.top + inner.height }));
      root.append(svg("text", { class: "axis", x: pad.left + inner.width / 2, y: height - 4, "text-anchor": "middle", text: xLabel }));
      root.append(svg("text", { class: "axis", x: 12, y: pad.top + inner.height / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${pad.top + inner.height / 2})`, text: yLabel }));
      drawMarks(root, marks, X, [lowX, highX], pad.top, pad.top + inner.height);

      for (const one of shown()) {
        let path = "", pen = false;
        one.points.forEach(([x, y], index) => {
          if (y === null) { pen = false; return; }
          const alone = !pen && (index + 1 >= one.points.length || one.points[index + 1][1] === null);
          path += `${pen ? "L" : "M"}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`;
          if (alone) root.append(svg("circle", { cx: X(x), cy: Y(y), r: 2, style: `fill:${one.colour}` }));
          pen = true;
        });
        root.append(svg("path", { class: "curve", d: path, style: `stroke:${one.colour}`, "stroke-dasharray": one.dash ? "5 4" : null, "data-name": one.name }));
      }

      const cursor = svg("line", { class: "cursor", y1: pad.top, y2: pad.top + inner.height, visibility: "hidden" });
      const sheet = svg("rect", { x: pad.left, y: pad.top, width: inner.width, height: inner.height, fill: "transparent" });
      sheet.addEventListener("pointermove", (event) => {
        const box = root.getBoundingClientRect();
        const part = ((event.clientX - box.left) * (width / box.width) - pad.left) / inner.width;
        const x = xLog ? lowX * (highX / lowX) ** part : lowX + part * (highX - lowX);
        cursor.setAttribute("x1", X(x)); cursor.setAttribute("x2", X(x)); cursor.setAttribute("visibility", "visible");
        const rows = shown().map((one) => {
          const near = nearest(one.points, x);
          return near && near[1] !== null ? [one.name, yFormat(near[1]), one.colour] : null;
        }).filter(Boolean);
        const close = marks.filter((mark) => Math.abs(X(mark.at) - X(x)) < 5).slice(0, 4).map((mark) => [mark.tip, ""]);
        showTip(event, xFormat ? xFormat(x) : `${seconds(x, (highX - lowX) / 1000)} s`, rows.concat(close));
      });
      sheet.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); hideTip(); });
      root.append(cursor, sheet);
      return root;
    };
    const box = figure(draw);
    return el("div", {}, [series.length > 1 && legend(series, () => box.again()), box]);
  };
  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    if (high < 0) return null;
    while (low < high) { const middle = (low + high) >> 1; if (points[middle][0] < x) low = middle + 1; else high = middle; }
    return low > 0 && Math.abs(points[low - 1][0] - x) < Math.abs(points[low][0] - x) ? points[low - 1] : points[low];
  };

  const drawMarks = (root, marks, X, [low, high], top, bottom) => {
    for (const mark of marks) {
      if (mark.at < low || mark.at > high) continue;
      const x = X(mark.at);
      root.append(svg("line", { class: mark.kind, x1: x, x2: x, y1: top, y2: bottom }, [svg("title", { text: mark.tip })]));
    }
    // Crashes get their label first; where there is no room for another, its line and its tip remain.
    const taken = [];
    for (const mark of [...marks].sort((a, b) => (a.kind === "crash" ? 0 : 1) - (b.kind === "crash" ? 0 : 1))) {
      if (mark.at < low || mark.at > high) continue;
      const x = X(mark.at), half = mark.label.length * 3.2 + 5;
      if (taken.some(([from, to]) => x + half > from && x - half < to)) continue;
      taken.push([x - half, x + half]);
      root.append(svg("text", { class: mark.kind === "crash" ? "crash" : null, x, y: top - 6, "text-anchor": "middle", text: mark.label }));
    }
  };

  // The verdict. ------------------------------------------------------------------------------------------------------

  const drawVerdict = () => {
    const { verdict } = data;
    const state = verdict === null ? "" : verdict.held ? "good" : "bad";
    const title = verdict === null ? "Not verified" : verdict.held ? "Every guarantee held" : "Guarantees were violated";
    const box = el("section", { class: `card verdict ${state}`, id: "verdict" }, [el("h2", { text: title })]);
    if (verdict === null) {
      box.append(el("p", { class: "about", text: "The figures below were measured; nobody has judged this trace." }));
      return box;
    }
    box.append(el("p", { class: "about", text: verdict.by }));
    const chips = el("div", { class: "chips" });
    for (const one of verdict.properties) {
      const kind = one.violations ? "bad" : one.checked ? "good" : "none";
      const word = one.violations ? `${grouped(one.violations)} violated of ${grouped(one.checked)}` : one.checked ? `${grouped(one.checked)} examined` : one.note || "nothing to examine";
      chips.append(el("div", { class: `chip ${kind}`, title: one.note || null }, [el("b", { text: one.name.replaceAll("_", " ") }), el("span", { text: word })]));
    }
    box.append(chips);
    if (verdict.violations.length) {
      const columns = ["property", data.runs.length > 1 && "run", "group", "view", "node", "message", "other_node", "other_message", "detail"].filter(Boolean);
      const table = tableOf(
        ["", ...columns.map((name) => name.replaceAll("_", " "))],
        verdict.violations.map((row) => [row.severity, ...columns.map((name) => row[name] ?? "")]), [],
      );
      table.id = "violations";
      [...table.querySelectorAll("tbody tr")].forEach((line, index) => {
        const row = verdict.violations[index];
        if (row.severity === "root") line.firstChild.className = "root";
        line.lastChild.className = "detail";
        if (row.n === null || row.n === undefined) return;
        const run = data.runs.find((one) => one.name === row.run);
        line.lastChild.append(el("code", { text: `ordercast verify ${run ? quoted(run.folder) : "TRACE"} --around ${quoted(`${row.run}:${row.node}:${row.n}`)}` }));
      });
      box.append(el("details", { open: "" }, [el("summary", { text: `${grouped(verdict.found)} rows of evidence, root causes first` }), el("div", { class: "scroll tall" }, table)]));
      if (verdict.found > verdict.violations.length) box.append(el("p", { class: "note", text: `The first ${verdict.violations.length} are shown; ordercast verify --out keeps them all.` }));
    }
    return box;
  };

  const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const tableOf = (head, rows, numbers) => {
    const kind = (index) => (numbers.includes(index) ? "num" : null);
    return el("table", {}, [
      el("thead", {}, el("tr", {}, head.map((text, index) => el("th", { text, class: kind(index) })))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((text, index) => el("td", { text: String(text), class: kind(index) }))))),
    ]);
  };

  // One run. ----------------------------------------------------------------------------------------------------------

  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const marksOf = (run) => [
    ...run.views.map((view) => ({ kind: "view", at: view.at, label: view.reason, tip: `view of ${view.members} (${view.reason})` })),
    ...run.marks.filter((mark) => mark.kind === "crash").map((mark) => ({ kind: "crash", at: mark.at, label: `✕ ${mark.node}`, tip: `${mark.node} crashed` })),
  ].sort((a, b) => a.at - b.at);
  const worstOf = (run, stage) => run.latency.filter((one) => one.stage === stage);
  const overall = (run, key) => {
    const found = worstOf(run, "send").filter((one) => one[key] !== null);
    if (!found.length) return null;
    return found.reduce((best, one) => (one.messages > best.messages ? one : best))[key];
  };
  const standstill = (run) => Math.max(0, ...run.changes.map((one) => one.max_ns || 0));
  const perMessage = (run) => (run.datagrams.some((one) => one.direction === "tx" && one.per_message !== null) ? sum(run.datagrams.filter((one) => one.direction === "tx").map((one) => one.per_message)) : null);

  const drawTiles = (run) => {
    const messages = sum(run.groups.map((group) => group.messages));
    const rate = sum(run.groups.map((group) => group.messages_per_s || 0));
    const bytes = sum(run.groups.map((group) => group.bytes_per_s || 0));
    const main = worstOf(run, "send").reduce((best, one) => (!best || one.messages > best.messages ? one : best), null);
    const tile = (number, unit, words) => el("div", { class: "tile" }, [el("div", {}, [el("span", { class: "n", text: number }), unit && el("span", { class: "u", text: unit })]), el("div", { class: "w", text: words })]);
    const split = (text) => { const at = text.lastIndexOf(" "); return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)]; };
    const crashes = run.marks.filter((mark) => mark.kind === "crash").length;
    return el("div", { class: "tiles" }, [
      tile(short(messages), "messages", `delivered in ${run.nodes.length} members' traces`),
      tile(short(rate), "messages/s", `${trim(bytes / 1e6)} MB/s of payload`),
      main && tile(...split(time(main.p50_ns)), `median, ${main.service} send to delivery`),
      main && tile(...split(time(main.p99_ns)), "99th percentile of the same"),
      tile(String(run.views.length), "views", crashes ? `${crashes} crash${crashes > 1 ? "es" : ""}; longest standstill ${time(standstill(run))}` : `longest change ${time(standstill(run))}`),
      perMessage(run) !== null && tile(trim(perMessage(run)), "", "datagrams sent for each message, of all kinds"),
    ]);
  };

  const MANY = 12;
  const throughputSeries = (run) => {
    const nodes = run.nodes.filter((node) => run.delivered[node]);
    const points = (values) => values.map((value, index) => [(index + 0.5) * run.width_s, value]);
    if (nodes.length <= MANY) return nodes.map((node) => ({ name: node, colour: colour(run.nodes.indexOf(node)), points: points(run.delivered[node]) }));
    const at = (index) => nodes.map((node) => run.delivered[node][index]).filter((value) => value !== null);
    const over = (pick) => points(run.delivered[nodes[0]].map((_, index) => (at(index).length ? pick(at(index)) : null)));
    return [
      { name: "fastest member", colour: colour(2), points: over((values) => Math.max(...values)) },
      { name: "mean of all members", colour: colour(0), points: over((values) => sum(values) / values.length) },
      { name: "slowest member", colour: colour(1), points: over((values) => Math.min(...values)) },
    ];
  };
  const latencySeries = (run) => run.over_time.flatMap((one, index) => [
    { name: `${one.service} p50`, colour: colour(index), points: one.points.map(([bucket, p50]) => [(bucket + 0.5) * run.width_s, p50]) },
    { name: `${one.service} p99`, colour: colour(index), dash: true, points: one.points.map(([bucket, , p99]) => [(bucket + 0.5) * run.width_s, p99]) },
  ]).map((one) => ({ ...one, points: broken(one.points, run.width_s) }));
  const broken = (points, width) => {
    // A curve does not go on across buckets in which nothing was delivered.
    const found = [];
    points.forEach((point, index) => {
      if (index && point[0] - points[index - 1][0] > 1.5 * width) found.push([points[index - 1][0] + width, null]);
      found.push(point);
    });
    return found;
  };

  const curveSeries = (runs, stage) => {
    const found = [];
    runs.forEach((run, at) => worstOf(run, stage).forEach((one) => {
      if (!one.curve) return;
      const points = one.curve.map((value, index) => [Math.max(value, FLOOR / 10), data.ranks[index] * 100]);
      const name = runs.length > 1 ? `${run.label} · ${one.service}` : one.service;
      found.push({ name, colour: runs.length > 1 ? colour(at) : colour(found.length), dash: runs.length > 1 && found.some((other) => other.colour === colour(at)), points });
    }));
    return found;
  };
  const drawDistribution = (runs) => {
    const box = card("Latency distribution", "Share of deliveries that took at most so long. Further left is faster; a steep curve is steady.", "distribution");
    const bar = el("div", { class: "bar" });
    const place = el("div");
    const stages = [["send", "send to delivery"], ["reception", "reception to delivery"], ["t1", "t1: until placed"], ["t2", "t2: placed to delivery"]];
    const show = (stage, name) => {
      for (const button of bar.children) button.setAttribute("aria-pressed", String(button.textContent === name));
      place.replaceChildren(lineChart({ series: curveSeries(runs, stage), xLog: true, xFormat: time, yFormat: (value) => `${trim(value)} %`, yMax: 100, xLabel: `${name} (log scale)`, yLabel: "deliveries" }));
    };
    for (const [stage, name] of stages) bar.append(el("button", { type: "button", text: name, onclick: () => show(stage, name) }));
    show(...stages[0]);
    box.append(bar, place);
    return box;
  };

  const drawLatencyTable = (run) => {
    const names = { send: "send to delivery", reception: "reception to delivery", t1: "· until placed (t1)", t2: "· placed to delivery (t2)" };
    const rows = run.latency.map((one) => [one.service, names[one.stage] || one.stage, grouped(one.messages), ...["mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"].map((key) => time(one[key]))]);
    const box = card("Latency by service", "Weighted by messages; percentiles from mergeable sketches, within 0.3 % of rank.", "latency");
    box.append(el("div", { class: "scroll" }, tableOf(["service", "from", "deliveries", "mean", "p50", "p90", "p99", "p99.9", "max"], rows, [2, 3, 4, 5, 6, 7, 8])));
    return box;
  };

  const drawGroups = (run) => {
    const box = card("Groups", "The busiest groups, and all others together. Latency is from send to delivery.", "groups");
    const rows = [...run.groups].sort((a, b) => b.deliveries - a.deliveries).flatMap((group) => {
      const told = [group.group, grouped(group.members), grouped(group.sent), grouped(group.messages), grouped(group.deliveries), group.messages_per_s === null ? "–" : short(group.messages_per_s)];
      const times = run.group_latency.filter((one) => one.group === group.group).map((one) => [one.service, time(one.p50_ns), time(one.p99_ns), time(one.max_ns)]);
      return (times.length ? times : [["–", "–", "–", "–"]]).map((one, index) => [...(index ? ["", "", "", "", "", ""] : told), ...one]);
    });
    box.append(el("div", { class: "scroll tall" }, tableOf(["group", "members", "sent", "messages", "deliveries", "messages/s", "service", "p50", "p99", "max"], rows, [1, 2, 3, 4, 5, 7, 8, 9])));
    return box;
  };

  // Bars: `rows` of {name, parts: [{name, value, colour}]}. -------------------------------------------------------------

  const barChart = (rows, unit) => {
    const draw = (width) => {
      const pad = { left: Math.min(220, 16 + 7.2 * Math.max(...rows.map((row) => row.name.length))), right: 64, top: 4 };
      const each = 26, height = pad.top + rows.length * each + 34;
      const most = Math.max(...rows.map((row) => sum(row.parts.map((part) => part.value)))) || 1;
      const X = (value) => pad.left + (value / most) * (width - pad.left - pad.right);
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": unit });
      for (const value of ticks(0, most, 5).found) {
        root.append(svg("line", { class: "grid", x1: X(value), x2: X(value), y1: pad.top, y2: height - 30 }));
        root.append(svg("text", { x: X(value), y: height - 16, "text-anchor": "middle", text: short(value) }));
      }
      root.append(svg("text", { class: "axis", x: X(most / 2), y: height - 1, "text-anchor": "middle", text: unit }));
      rows.forEach((row, index) => {
        const y = pad.top + index * each;
        root.append(svg("text", { x: pad.left - 8, y: y + 16, "text-anchor": "end", text: row.name }));
        let from = 0;
        for (const part of row.parts) {
          const bar = svg("rect", { x: X(from), y: y + 4, width: Math.max(0.5, X(from + part.value) - X(from) - 0.5), height: each - 9, rx: 2, style: `fill:${part.colour}`, class: "bar-part" });
          bar.addEventListener("pointermove", (event) => showTip(event, row.name, [[part.name, `${short(part.value)} ${unit.split(" ")[0]}`, part.colour]].concat(part.more || [])));
          bar.addEventListener("pointerleave", hideTip);
          root.append(bar);
          from += part.value;
        }
        root.append(svg("text", { x: X(from) + 6, y: y + 16, text: trim(from) }));
      });
      return root;
    };
    return figure(draw);
  };
  const kindsOf = (runs) => {
    const most = {};
    for (const run of runs) for (const one of run.datagrams) if (one.direction === "tx") most[one.kind] = Math.max(most[one.kind] || 0, one.per_message || 0);
    return Object.keys(most).sort((a, b) => most[b] - most[a]);
  };
  const drawDatagrams = (run) => {
    const rows = run.datagrams.filter((one) => one.direction === "tx" && one.datagrams).sort((a, b) => b.datagrams - a.datagrams);
    const received = Object.fromEntries(run.datagrams.filter((one) => one.direction === "rx").map((one) => [one.kind, one.datagrams]));
    const box = card("Datagrams by kind", "Sent by all members for each delivered message; a multicast counts once.", "datagrams");
    if (!rows.length) box.append(el("p", { class: "note", text: "The trace has no rows about datagrams." }));
    else box.append(barChart(rows.slice(0, 14).map((one) => ({ name: one.kind || "–", parts: [{ name: "sent for each message", value: one.per_message || 0, colour: colour(0), more: [["sent", grouped(one.datagrams)], ["received", grouped(received[one.kind] || 0)], ["bytes sent", short(one.bytes)]] }] })), "datagrams sent for each message"));
    return box;
  };

  const drawRegions = (run) => {
    const box = card("Regions", "What keeps regions reliable, and what nodes received without wanting it: messages to groups of their region that they are not in.", "regions");
    const percent = (value) => (value === null ? "–" : `${trim(100 * value)} %`);
    for (const one of run.regions) {
      const rows = [["regions with traffic", grouped(one.regions), ""], ["blocks sent", grouped(one.blocks), ""], ["blocks lost, at all members", grouped(one.lost_blocks), ""], ["control, bytes", short(one.control_bytes), percent(one.control_share)], ["tokens", grouped(one.tokens), ""], ["repairs by push", grouped(one.pushed), ""], ["repairs by pull", grouped(one.pulled), ""], ["received and not wanted", grouped(one.wasted), percent(one.waste_share)]];
      box.append(el("div", { class: "scroll" }, tableOf(["", "count", "of all"], rows, [1, 2])));
    }
    const waste = run.waste.filter((one) => one.wasted).map((one) => [one.node, one.region, grouped(one.received), grouped(one.wasted), percent(one.share)]);
    if (waste.length) box.append(el("details", {}, [el("summary", { text: "nodes with waste" }), el("div", { class: "scroll" }, tableOf(["node", "region", "received", "not wanted", "of all"], waste, [2, 3, 4]))]));
    return box;
  };

  const drawChanges = (run) => {
    const box = card("Views, repairs and the token", "A view change lasts from a member's last delivery before it to its first after; in an idle group that includes the wait for the next message.", "changes");
    const rows = run.changes.map((one) => [`view change: ${one.reason || "–"}`, grouped(one.views), time(one.min_ns), time(one.p50_ns), time(one.max_ns)]);
    for (const one of run.group_changes) rows.push([`view of one of ${grouped(one.groups)} groups: ${one.reason || "–"}`, grouped(one.views), "–", "–", "–"]);
    for (const one of run.repairs) rows.push([one.stage === "open" ? "gap never repaired" : "gap noticed to repaired", grouped(one.messages), ...(one.stage === "open" ? ["–", "–", "–"] : [time(one.min_ns), time(one.p50_ns), time(one.max_ns)])]);
    for (const one of run.rotation) rows.push(["token: from pass to pass of a member", grouped(one.messages), time(one.min_ns), time(one.p50_ns), time(one.max_ns)]);
    box.append(el("div", { class: "scroll" }, tableOf(["", "count", "least", "median", "greatest"], rows, [1, 2, 3, 4])));
    const seen = run.views.map((view) => [seconds(view.at, 0.001), view.reason || "–", view.members, time(view.change_ns), view.id]);
    const table = tableOf(["at (s)", "why", "members", "longest change", "view"], seen, [0, 3]);
    box.append(el("details", {}, [el("summary", { text: `${run.views.length} views` }), el("div", { class: "scroll" }, table)]));
    return box;
  };

  const drawParameters = (run) => {
    const box = card("Run", null, "parameters");
    const told = [["run", run.name], ["orderer", run.orderer], ["source", run.source], ["clock", run.clock], ["seed", run.seed ?? "–"], ["services", run.services.join(", ")], ["started", run.started], ["software", run.software], ["events", grouped(run.events)], ["bucket of the time series", `${trim(run.width_s * 1000)} ms`], ["trace", run.folder]];
    box.append(tableOf(["", ""], told, []));
    box.append(el("details", {}, [el("summary", { text: "all parameters" }), el("div", { class: "scroll" }, tableOf(["parameter", "value"], run.parameters, []))]));
    return box;
  };

  // The order timeline: members as lanes, blocks of messages as marks in the colour of their sender. --------------------

  const unpack = (run) => {
    const packed = run.timeline, rows = [];
    let at = 0;
    for (let index = 0; index < packed.t.length; index += 1) {
      at += packed.t[index];
      rows.push({ t: at / 1e6, node: packed.node[index], sender: packed.sender[index], first: packed.first[index], count: packed.count[index], service: packed.service[index], position: packed.position[index] });
    }
    return rows;
  };
  const DRAWN = 4000, LINKED = 260;
  const drawTimeline = (run, isFirst) => {
    const about = "Each mark is a block of messages at the moment of its delivery, in its sender's colour; blocks delivered together stand above each other, first on top. By place, equal lanes are equal orders.";
    const box = card("Order timeline", about, isFirst ? "timeline" : null);
    const rows = unpack(run);
    if (!rows.length) { box.append(el("p", { class: "note", text: "Nothing was delivered." })); return box; }
    const last = Math.max(run.seconds, rows[rows.length - 1].t);
    const marks = marksOf(run);
    const state = { from: 0, to: last, by: "time" };
    const clamp = (from, to) => {
      const width = Math.max(1e-5, Math.min(last, to - from));
      state.from = Math.min(Math.max(0, from), last - width);
      state.to = state.from + width;
    };
    const densest = () => {
      // Around the first crash or failure if there is one, else in the middle: so wide that some hundreds of marks are in it.
      const reset = run.views.find((view) => view.reason === "reset");
      const crash = marks.find((mark) => mark.kind === "crash") || (reset && { at: reset.at });
      const middle = crash ? crash.at : rows[rows.length >> 1].t;
      let index = rows.findIndex((row) => row.t >= middle);
      if (index < 0) index = rows.length - 1;
      const near = rows.slice(Math.max(0, index - 150), index + 150);
      const low = near[0].t, high = near[near.length - 1].t;
      const room = Math.max((high - low) * 0.05, 1e-4);
      clamp(low - room, high + room);
    };
    const wanted = /(?:^|[#&])t=([\d.]+)-([\d.]+)/.exec(location.hash);
    if (wanted && isFirst && Number(wanted[2]) > Number(wanted[1])) clamp(Number(wanted[1]), Number(wanted[2])); else densest();
    if (isFirst && /(?:^|[#&])by=place/.test(location.hash)) state.by = "place";

    const from = el("input", { type: "number", step: "any", "aria-label": "from, seconds" });
    const to = el("input", { type: "number", step: "any", "aria-label": "to, seconds" });
    const jump = el("select", { "aria-label": "go to" }, [el("option", { text: "go to …", value: "" }), ...marks.map((mark, index) => el("option", { value: index, text: `${seconds(mark.at, 0.001)} s  ${mark.tip}` }))]);
    const note = el("p", { class: "note" });
    const byTime = el("button", { type: "button", text: "by time", onclick: () => { state.by = "time"; refresh(); } });
    const byPlace = el("button", { type: "button", text: "by place in the order", onclick: () => { state.by = "place"; refresh(); } });
    const move = (part) => () => { const width = state.to - state.from; clamp(state.from + part * width, state.to + part * width); refresh(); };
    const zoom = (factor) => () => { const middle = (state.from + state.to) / 2, half = ((state.to - state.from) * factor) / 2; clamp(middle - half, middle + half); refresh(); };
    const typed = () => { if (Number(to.value) > Number(from.value)) { clamp(Number(from.value), Number(to.value)); refresh(); } };
    from.addEventListener("change", typed); to.addEventListener("change", typed);
    jump.addEventListener("change", () => {
      if (jump.value === "") return;
      const half = (state.to - state.from) / 2, { at } = marks[Number(jump.value)];
      clamp(at - half, at + half); refresh();
    });
    box.append(el("div", { class: "bar" }, [
      el("button", { type: "button", text: "◀", "aria-label": "earlier", onclick: move(-0.5) }), el("button", { type: "button", text: "▶", "aria-label": "later", onclick: move(0.5) }),
      el("button", { type: "button", text: "+", "aria-label": "closer", onclick: zoom(0.5) }), el("button", { type: "button", text: "−", "aria-label": "wider", onclick: zoom(2) }),
      document.createTextNode("from"), from, document.createTextNode("to"), to, document.createTextNode("s"), jump, el("span", { class: "gap" }), byTime, byPlace,
    ]));

    const senders = run.timeline.senders;
    const used = [...new Set(rows.map((row) => row.sender))].sort((a, b) => a - b);
    const shade = (sender) => colour(run.nodes.indexOf(senders[sender].split("/")[0]) < 0 ? sender : run.nodes.indexOf(senders[sender].split("/")[0]));
    box.append(el("div", { class: "legend" }, used.slice(0, 24).map((sender) => el("span", { class: "key" }, [el("i", { class: "block", style: `background:${shade(sender)}` }), document.createTextNode(`from ${senders[sender].split("/")[0]}`)]))));

    const refresh = () => {
      const width = state.to - state.from;
      from.value = seconds(state.from, width / 100); to.value = seconds(state.to, width / 100);
      byTime.setAttribute("aria-pressed", String(state.by === "time")); byPlace.setAttribute("aria-pressed", String(state.by === "place"));
      strip.again(); main.again();
    };
    const LEFT = 74, RIGHT = 14;

    const drawStrip = (width) => {
      const height = 46, root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "the whole run; drag to choose a window" });
      const X = (value) => LEFT + (value / last) * (width - LEFT - RIGHT);
      const totals = [];
      for (const node of run.nodes) (run.delivered[node] || []).forEach((value, index) => { totals[index] = (totals[index] || 0) + (value || 0); });
      const most = Math.max(1, ...totals.filter(Boolean));
      let path = `M${LEFT} 40`;
      for (let index = 0; index < totals.length; index += 1) path += `L${X(index * run.width_s).toFixed(1)} ${(40 - (32 * (totals[index] || 0)) / most).toFixed(1)}H${X(Math.min(last, (index + 1) * run.width_s)).toFixed(1)}`;
      root.append(svg("rect", { class: "lane", x: LEFT, y: 4, width: width - LEFT - RIGHT, height: 36, rx: 3 }), svg("path", { class: "area", d: `${path}V40Z` }));
      for (const mark of marks) root.append(svg("line", { class: mark.kind, x1: X(mark.at), x2: X(mark.at), y1: 4, y2: 40 }));
      root.append(svg("text", { x: LEFT - 8, y: 26, "text-anchor": "end", text: "whole run" }));
      const a = X(state.from), b = Math.max(a + 2, X(state.to));
      root.append(svg("rect", { class: "brush", x: a, y: 3, width: b - a, height: 38, rx: 2 }));
      const where = (event) => { const rect = root.getBoundingClientRect(); return (((event.clientX - rect.left) * (width / rect.width) - LEFT) / (width - LEFT - RIGHT)) * last; };
      root.addEventListener("pointerdown", (event) => {
        const begin = where(event), half = (state.to - state.from) / 2;
        const drag = (next) => { const end = where(next); if (Math.abs(X(end) - X(begin)) > 4) { clamp(Math.min(begin, end), Math.max(begin, end)); main.again(); root.querySelector(".brush").setAttribute("x", X(state.from)); root.querySelector(".brush").setAttribute("width", Math.max(2, X(state.to) - X(state.from))); } };
        const drop = (next) => { window.removeEventListener("pointermove", drag); if (Math.abs(X(where(next)) - X(begin)) <= 4) clamp(begin - half, begin + half); refresh(); };
        window.addEventListener("pointermove", drag);
        window.addEventListener("pointerup", drop, { once: true });
        event.preventDefault();
      });
      return root;
    };

    const drawMain = (width) => {
      const each = Math.max(20, Math.min(46, 420 / run.nodes.length)), gap = 5, top = 26;
      const height = top + run.nodes.length * each + 40, bottom = top + run.nodes.length * each;
      const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "deliveries of each member" });
      let inside = rows.filter((row) => row.t >= state.from && row.t <= state.to);
      const isPlace = state.by === "place";
      let low = state.from, high = state.to;
      if (isPlace) {
        inside = inside.filter((row) => row.position !== null);
        low = Infinity; high = -Infinity;
        for (const row of inside) { low = Math.min(low, row.position); high = Math.max(high, row.position + row.count); }
        if (high <= low || !inside.length) { low = 0; high = 1; }
        inside = rows.filter((row) => row.position !== null && row.position >= low && row.position < high);
      }
      const whole = inside.length, every = Math.ceil(whole / DRAWN);
      if (every > 1) inside = inside.filter((row) => (row.first + row.sender) % every === 0);
      const X = (value) => LEFT + ((value - low) / (high - low)) * (width - LEFT - RIGHT);
      const across = ticks(low, high, Math.max(3, Math.floor(width / 130)));
      for (const value of across.found) {
        root.append(svg("line", { class: "grid", x1: X(value), x2: X(value), y1: top, y2: bottom }));
        root.append(svg("text", { x: X(value), y: bottom + 16, "text-anchor": "middle", text: isPlace ? grouped(Math.round(value)) : seconds(value, across.step) }));
      }
      root.append(svg("text", { class: "axis", x: LEFT + (width - LEFT - RIGHT) / 2, y: height - 4, "text-anchor": "middle", text: isPlace ? "place in the total order (number of the message)" : "seconds since the run began" }));
      run.nodes.forEach((node, index) => {
        const y = top + index * each;
        if (isPlace) root.append(svg("rect", { class: "lane", x: LEFT, y: y + gap / 2, width: width - LEFT - RIGHT, height: each - gap, rx: 3 }));
        else for (const [begin, end] of run.lives[node] || []) {
          const a = Math.max(low, begin), b = Math.min(high, end);
          if (b > a) root.append(svg("rect", { class: "lane", x: X(a), y: y + gap / 2, width: Math.max(1, X(b) - X(a)), height: each - gap, rx: 3 }));
        }
        root.append(svg("text", { class: "strong", x: LEFT - 8, y: y + each / 2 + 4, "text-anchor": "end", text: node.length > 8 ? `${node.slice(0, 7)}…` : node }));
      });
      if (!isPlace) drawMarks(root, marks, X, [low, high], top, bottom);

      // Columns of what a member delivered in one pass: as high as the lane, the first on top.
      const columns = new Map();
      for (const row of inside) {
        const key = isPlace ? `${row.node} ${row.position} ${row.first}` : `${row.node} ${Math.round(X(row.t) / 4)}`;
        if (!columns.has(key)) columns.set(key, []);
        columns.get(key).push(row);
      }
      // As wide as there is room before the next column, so that a few are easy to see.
      const before = new Map();
      for (const column of [...columns.values()].sort((a, b) => a[0].t - b[0].t)) {
        const { node, t } = column[0];
        column.wide = 9;
        if (before.has(node)) { const other = before.get(node); other.wide = Math.max(2.6, Math.min(9, X(t) - X(other[0].t) - 1)); }
        before.set(node, column);
      }
      const centres = new Map(), drawn = [];
      const full = each - gap;
      for (const column of columns.values()) column.forEach((row, index) => {
        const part = full / column.length;
        const x = isPlace ? X(row.position) : X(row.t), y = top + row.node * each + gap / 2 + index * part;
        const w = isPlace ? Math.max(1, X(row.position + row.count) - x - 0.4) : column.wide;
        const mark = svg("rect", { class: "mark", x: x.toFixed(1), y: y.toFixed(1), width: w.toFixed(1), height: Math.max(0.8, part - (part > 4 ? 0.8 : 0)).toFixed(1), style: `fill:${shade(row.sender)}` });
        mark.row = row;
        drawn.push(mark);
        const key = `${row.sender} ${row.first}`;
        if (!centres.has(key)) centres.set(key, []);
        centres.get(key).push([row.node, x + (isPlace ? 0 : column.wide / 2), y + part / 2]);
      });
      if (!isPlace && centres.size <= LINKED) for (const points of centres.values()) {
        points.sort((a, b) => a[0] - b[0]);
        if (points.length > 1) root.append(svg("path", { class: "link", d: `M${points.map((point) => `${point[1].toFixed(1)} ${point[2].toFixed(1)}`).join("L")}` }));
      }
      const layer = svg("g", { class: "marks", "data-marks": drawn.length }, drawn);
      layer.addEventListener("pointermove", (event) => {
        const { row } = event.target;
        if (!row) return;
        const name = senders[row.sender].split("/")[0];
        showTip(event, `${run.nodes[row.node]} delivers from ${name}`, [
          ["numbers", row.count === 1 ? `${row.first}` : `${row.first} to ${row.first + row.count - 1}`, shade(row.sender)],
          ["at", `${seconds(row.t, 1e-6)} s`], ["service", run.timeline.services[row.service] || "–"], ["place", row.position === null ? "none" : grouped(row.position)],
        ]);
      });
      layer.addEventListener("pointerleave", hideTip);
      root.append(layer);
      const words = [];
      if (every > 1) words.push(`${grouped(whole)} blocks in this window: one of ${every} is drawn, the same at each member. Zoom in for all.`);
      else words.push(`${grouped(whole)} deliveries of blocks in this window.`);
      if (run.timeline.every > 1) words.push(`The report holds one block of ${run.timeline.every} of this run, and all of them in ${run.timeline.windows.map((one) => `${seconds(one[0], 0.001)}–${seconds(one[1], 0.001)} s`).join(", ") || "no window"}.`);
      if (isPlace) words.push("A hole in a lane is what its member did not deliver: it was not there, or has missed it.");
      note.textContent = words.join(" ");
      return root;
    };
    const strip = figure(drawStrip), main = figure(drawMain);
    strip.className = "grab";
    box.append(strip, main, note);
    refresh();
    return box;
  };

  // Several runs. -----------------------------------------------------------------------------------------------------

  const drawComparison = (runs) => {
    const found = el("div", { id: "comparison" });
    const table = card("Comparison", null);
    const rows = runs.map((run) => {
      const verdict = data.verdict && data.verdict.runs.find((one) => one.name === run.name);
      const word = verdict ? (verdict.violations ? `${grouped(verdict.violations)} violated` : "held") : "–";
      return [run.label, run.orderer, run.services.join(", "), String(run.nodes.length), short(sum(run.groups.map((group) => group.messages))), short(sum(run.groups.map((group) => group.messages_per_s || 0))), time(overall(run, "p50_ns")), time(overall(run, "p99_ns")), perMessage(run) === null ? "–" : trim(perMessage(run)), time(standstill(run)), word];
    });
    table.append(el("div", { class: "scroll" }, tableOf(["run", "orderer", "services", "nodes", "messages", "messages/s", "p50", "p99", "datagrams/message", "longest change", "guarantees"], rows, [3, 4, 5, 6, 7, 8, 9])));
    found.append(table);
    const mean = (run) => {
      const nodes = run.nodes.filter((node) => run.delivered[node]);
      if (!nodes.length) return [];
      return run.delivered[nodes[0]].map((_, index) => {
        const values = nodes.map((node) => run.delivered[node][index]).filter((value) => value !== null);
        return [(index + 0.5) * run.width_s, values.length ? sum(values) / values.length : null];
      });
    };
    const strongest = (run) => run.over_time.reduce((best, one) => (!best || one.total > best.total ? one : best), null);
    const throughput = card("Throughput over time", "Messages delivered each second, mean of the members.");
    throughput.append(lineChart({ series: runs.map((run, index) => ({ name: run.label, colour: colour(index), points: mean(run) })), xLabel: "seconds since the run began", yLabel: "messages/s" }));
    const latency = card("Latency over time", "Send to delivery of the service with most messages; p99 dashed.");
    latency.append(lineChart({
      series: runs.flatMap((run, index) => {
        const one = strongest(run);
        if (!one) return [];
        const at = (which) => broken(one.points.map((point) => [(point[0] + 0.5) * run.width_s, point[which]]), run.width_s);
        return [{ name: `${run.label} p50`, colour: colour(index), points: at(1) }, { name: `${run.label} p99`, colour: colour(index), dash: true, points: at(2) }];
      }), yLog: true, yFormat: time, xLabel: "seconds since the run began", yLabel: "latency (log scale)",
    }));
    found.append(throughput, latency);
    const kinds = kindsOf(runs);
    const datagrams = card("Datagrams for each message", "Sent by all members, a multicast once.");
    const keys = kinds.slice(0, 9);
    datagrams.append(el("div", { class: "legend" }, keys.map((kind, index) => el("span", { class: "key" }, [el("i", { class: "block", style: `background:${colour(index)}` }), document.createTextNode(kind)]))));
    datagrams.append(barChart(runs.map((run) => ({ name: run.label, parts: kinds.map((kind, index) => ({ name: kind, value: (run.datagrams.find((one) => one.direction === "tx" && one.kind === kind) || {}).per_message || 0, colour: colour(Math.min(index, 9)) })).filter((part) => part.value) })), "datagrams sent for each message"));
    found.append(el("div", { class: "two" }, [drawDistribution(runs), datagrams]));
    return found;
  };

  const drawRun = (run, isFirst) => {
    const found = el("div", { class: "run", "data-run": run.name });
    found.append(drawTiles(run));
    const marks = marksOf(run), range = [0, run.seconds];
    const throughput = card("Throughput over time", "Messages delivered each second by each member. Dashed lines are new views, red lines crashes.", isFirst ? "throughput" : null);
    throughput.append(lineChart({ series: throughputSeries(run), marks, xRange: range, xLabel: "seconds since the run began", yLabel: "messages/s" }));
    const latency = card("Latency over time", "From send to delivery, by the moment of delivery; p50 and p99 of each bucket.", isFirst ? "latency-over-time" : null);
    latency.append(lineChart({ series: latencySeries(run), marks, xRange: range, yLog: true, yFormat: time, xLabel: "seconds since the run began", yLabel: "latency (log scale)" }));
    found.append(throughput, latency, drawTimeline(run, isFirst));
    if (data.runs.length === 1) found.append(el("div", { class: "two" }, [drawDistribution([run]), drawDatagrams(run)]));
    else found.append(drawDatagrams(run));
    found.append(drawLatencyTable(run), ...(run.groups.length > 1 ? [drawGroups(run)] : []), ...(run.regions.length ? [drawRegions(run)] : []), drawChanges(run), drawParameters(run));
    return found;
  };

  // The page. ---------------------------------------------------------------------------------------------------------

  const one = data.runs.length === 1 ? data.runs[0] : null;
  const sub = one ? `${one.orderer} orderer · ${one.source === "sim" ? "simulated" : "real processes"} · ${one.nodes.length} nodes · ${trim(one.seconds)} s · run ${one.name}` : `${data.runs.length} runs`;
  page.append(el("div", { class: "head" }, [el("h1", { text: data.title }), el("span", { class: "sub", text: sub })]), drawVerdict());
  if (one) page.append(drawRun(one, true));
  else {
    page.append(drawComparison(data.runs));
    const place = el("div"), tabs = el("div", { class: "tabs", role: "group", "aria-label": "run" });
    const show = (index) => {
      [...tabs.children].forEach((button, at) => button.setAttribute("aria-pressed", String(at === index)));
      place.replaceChildren(drawRun(data.runs[index], true));
    };
    data.runs.forEach((run, index) => tabs.append(el("button", { type: "button", text: run.label, onclick: () => show(index) })));
    page.append(tabs, place);
    const wanted = /(?:^|[#&])run=(\d+)/.exec(location.hash);
    show(wanted && Number(wanted[1]) < data.runs.length ? Number(wanted[1]) : 0);
  }
  page.append(el("footer", { text: `Written by ordercast report ${data.software}. This file holds everything it shows, and loads nothing.` }));
  document.body.dataset.ready = "1";
})();
