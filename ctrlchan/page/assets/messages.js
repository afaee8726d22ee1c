// Messages of a topic: which ones, how their bytes are shown, and the details of each.

import { read } from "./api.js";
import { h } from "./dom.js";
import { command, empty, field, notes, options, table } from "./parts.js";
import { count, kindOf, preview, printable, shownAs, size, time, zone } from "./text.js";

const FROM = [
  ["newest", "the newest"],
  ["oldest", "the oldest"],
  ["offset", "an offset"],
  ["time", "a time"],
];
const LIMITS = ["20", "50", "200", "500"].map((one) => [one, one]);
const SHOW_AS = [
  ["auto", "what fits"],
  ["text", "text"],
  ["json", "JSON"],
  ["hex", "hex"],
];

export const messages = {
  name: "Messages",
  load: (page) =>
    read("api/messages", {
      topic: page.path[1],
      partition: page.query.get("partition"),
      from: page.query.get("from"),
      at: page.query.get("at"),
      limit: page.query.get("limit"),
      positions: page.query.get("positions"),
    }),
  show: (data, page) => {
    const newest = isNewest(page);
    const shown = newest ? [...data.messages].reverse() : data.messages;
    return [
      choices(page),
      notes(data.notes, 0, 0, ""),
      shown.length ? table("Messages", columns(), shown.flatMap((one) => rows(one, page))) : nothing(data, page),
      h(
        "div",
        { class: "bar", key: "more" },
        newest && data.more
          ? h("p", { class: "soft" }, "There are older messages: ", h("a", { href: link(page, { from: "oldest" }) }, "begin with the oldest"), ", or show more of them.")
          : null,
        !newest && data.more ? h("a", { class: "button", href: link(page, { ...current(page), positions: data.positions }) }, "Next messages") : null,
      ),
    ];
  },
};

function isNewest(page) {
  return (page.query.get("from") ?? "newest") === "newest" && !page.query.get("positions");
}

function current(page) {
  const { positions, ...rest } = Object.fromEntries(page.query);
  return rest;
}

function link(page, query) {
  const text = new URLSearchParams(query).toString();
  return `#/topics/${encodeURIComponent(page.path[1])}/messages${text ? `?${text}` : ""}`;
}

function columns() {
  return [
    ["Partition", "n"],
    ["Offset", "n"],
    [`Time (${zone()})`, "time"],
    ["Key", "key"],
    ["Value", "value"],
  ];
}

function choices(page) {
  const from = page.state.from ?? page.query.get("from") ?? "newest";
  return h(
    "form",
    {
      class: "bar",
      key: "choices",
      "aria-label": "Which messages",
      onsubmit: (event) => {
        event.preventDefault();
        location.hash = link(page, chosen(new FormData(event.target)));
      },
    },
    field("From", h("select", { name: "from", onchange: (event) => page.draw({ from: event.target.value }) }, options(FROM, from))),
    from === "offset"
      ? h("div", { key: "offset" }, field("Offset", h("input", { name: "offset", type: "number", min: "0", step: "1", required: true, value: page.query.get("at") ?? "0" })))
      : null,
    from === "time"
      ? h("div", { key: "time" }, field(`Time (${zone()})`, h("input", { name: "time", type: "datetime-local", step: "1", required: true, value: localTime(page.query.get("at")) })))
      : null,
    field("Partition", partitionInput(page)),
    field("Messages", h("select", { name: "limit" }, options(LIMITS, page.query.get("limit") ?? "50"))),
    h("button", { type: "submit", class: "main" }, "Show"),
    field("Bytes as", h("select", { onchange: (event) => page.draw({ as: event.target.value }) }, options(SHOW_AS, page.state.as ?? "auto"))),
  );
}

function partitionInput(page) {
  return h("input", {
    name: "partition",
    type: "number",
    min: "0",
    step: "1",
    placeholder: "all",
    value: page.query.get("partition") ?? "",
  });
}

function localTime(at) {
  const known = at && Number.isFinite(Number(at));
  return time(known ? Number(at) : Date.now() - 3_600_000).slice(0, 19).replace(" ", "T");
}

function chosen(form) {
  const query = { from: form.get("from"), limit: form.get("limit") };
  if (form.get("partition")) query.partition = form.get("partition");
  if (query.from === "offset") query.at = form.get("offset");
  if (query.from === "time") query.at = String(new Date(form.get("time")).getTime());
  return query;
}

// A row for the message and, where it is open, one for its details.
function rows(message, page) {
  const key = `${message.partition}-${message.offset}`;
  const open = page.state.opened?.has(key) ?? false;
  const cells = [
    message.partition,
    count(message.offset),
    time(message.timestamp),
    line(message.key, page),
    h(
      "button",
      {
        class: "open",
        type: "button",
        "aria-expanded": String(open),
        "aria-label": `Details of offset ${message.offset} in partition ${message.partition}`,
        onclick: () => page.draw({ opened: toggled(page, key) }),
      },
      line(message.value, page),
    ),
  ];
  return [{ key, cells }, ...(open ? [{ key: `${key} details`, wide: details(message, page, key) }] : [])];
}

function toggled(page, key) {
  const opened = new Set(page.state.opened);
  if (!opened.delete(key)) opened.add(key);
  return opened;
}

function line(data, page) {
  if (data === null) return h("em", null, "null");
  if (data.size === 0) return h("em", null, "empty");
  return h("span", { class: "line" }, preview(data, kindOf(data, page.state.as ?? "auto")));
}

function details(message, page, key) {
  const whole = page.state.whole?.get(key);
  const shown = whole ?? message;
  const cut = [message.key, message.value, ...message.headers.flat()].some(isCut) || message.more_headers > 0;
  return h(
    "dl",
    null,
    h("dt", null, "Key"),
    h("dd", null, content(shown.key, page)),
    h("dt", null, `Headers (${count(shown.headers.length + shown.more_headers)})`),
    h("dd", null, headers(shown, page)),
    h("dt", null, "Value"),
    h("dd", null, content(shown.value, page)),
    h("dt", null, "Record"),
    h("dd", { class: "soft" }, `${shown.timestamp_type} ${shown.timestamp}, compression ${shown.compression}`),
    cut && !whole
      ? h("dd", null, h("button", { type: "button", onclick: () => load(message, page, key) }, "Load more bytes"))
      : null,
    page.state.failed?.get(key) ? h("dd", { class: "bad" }, page.state.failed.get(key)) : null,
  );
}

function headers(message, page) {
  if (!message.headers.length) return h("em", null, "none");
  return [
    h(
      "ul",
      { class: "headers" },
      message.headers.map(([name, value]) =>
        h("li", null, h("b", null, printable(text(name))), ": ", line(value, page), isCut(value) ? cutSign(value) : null),
      ),
    ),
    message.more_headers ? h("p", { class: "warn" }, `and ${count(message.more_headers)} more`) : null,
  ];
}

function text(data) {
  return data.size ? preview(data, kindOf(data, "text")) : "";
}

function content(data, page) {
  if (data === null || data.size === 0) return line(data, page);
  const kind = kindOf(data, page.state.as ?? "auto");
  return [
    h("pre", { tabindex: "0", class: kind }, shownAs(data, kind)),
    h("p", { class: "soft" }, size(data.size), isCut(data) ? cutSign(data) : null),
  ];
}

function isCut(data) {
  return data !== null && bytes(data) < data.size;
}

function bytes(data) {
  const padding = data.base64.endsWith("==") ? 2 : data.base64.endsWith("=") ? 1 : 0;
  return (data.base64.length / 4) * 3 - padding;
}

function cutSign(data) {
  return h("span", { class: "warn" }, ` – only the first ${size(bytes(data))} of ${size(data.size)} are shown`);
}

async function load(message, page, key) {
  try {
    const whole = await read("api/message", { topic: page.path[1], partition: message.partition, offset: message.offset });
    page.draw({ whole: new Map(page.state.whole).set(key, whole) });
  } catch (error) {
    page.draw({ failed: new Map(page.state.failed).set(key, error.message) });
  }
}

function nothing(data, page) {
  if (!data.empty) return empty("There is no message here.", h("p", null, "Begin earlier, or with the newest."));
  return empty(
    "There is no message yet.",
    h("p", null, "Write one under ", h("a", { href: `#/topics/${encodeURIComponent(page.path[1])}/produce` }, "Produce"), ", or with a client:"),
    command(
      `echo hello | kcat -b ${page.bootstrap} -P -t ${page.path[1]}`,
      `kafka-console-producer.sh --bootstrap-server ${page.bootstrap} --topic ${page.path[1]}`,
    ),
  );
}
