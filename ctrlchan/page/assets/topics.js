// The list of topics, and the form that creates one.

import { change, read } from "./api.js";
import { h } from "./dom.js";
import { command, empty, field, notes, outcome, table } from "./parts.js";
import { count, plural, size } from "./text.js";

const COLUMNS = [
  ["Topic", "name"],
  ["Partitions", "n"],
  ["Replicas", "n"],
  ["Messages", "n"],
  ["Size", "n"],
  ["State", ""],
];

export const topics = {
  tab: "topics",
  title: () => "Topics",
  load: (page) =>
    read("api/topics", { query: page.state.query, internal: page.state.internal ? "yes" : "no" }),
  show: (data, page) => [
    h("h1", { key: "title", tabindex: "-1" }, "Topics"),
    h(
      "p",
      { class: "soft", key: "cluster" },
      `Cluster ${data.cluster_id ?? "without an id"} · ${plural(data.brokers, "node")} · bootstrap.servers=`,
      h("code", null, page.bootstrap),
    ),
    filters(page),
    notes(data.notes, data.topics.length, data.total, "topics"),
    data.topics.length ? table("Topics", COLUMNS, data.topics.map(row)) : nothing(data, page),
    form(page),
  ],
};

function filters(page) {
  return h(
    "div",
    { class: "bar", key: "filters" },
    field(
      "Name contains",
      h("input", {
        id: "filter",
        type: "search",
        autocomplete: "off",
        spellcheck: "false",
        value: page.state.query ?? "",
        oninput: (event) => page.set({ query: event.target.value }),
      }),
    ),
    h(
      "label",
      { class: "check" },
      h("input", {
        type: "checkbox",
        checked: page.state.internal ?? false,
        onchange: (event) => page.set({ internal: event.target.checked }),
      }),
      "Kafka's internal topics, too",
    ),
  );
}

function row(topic) {
  return {
    key: topic.topic,
    cells: [
      h("a", { href: `#/topics/${encodeURIComponent(topic.topic)}` }, topic.topic),
      count(topic.partitions),
      count(topic.replicas),
      count(topic.messages),
      size(topic.size),
      state(topic),
    ],
  };
}

function state(topic) {
  const parts = [];
  if (topic.offline) parts.push(h("span", { class: "bad" }, `${plural(topic.offline, "partition")} without leader`));
  if (topic.out_of_sync) {
    parts.push(h("span", { class: "warn" }, `${plural(topic.out_of_sync, "partition")} not in sync`));
  }
  if (!parts.length) parts.push(h("span", { class: "fine" }, "in sync"));
  if (topic.internal) parts.push(h("span", { class: "soft" }, "internal"));
  return parts.map((one, place) => [place ? ", " : "", one]);
}

function nothing(data, page) {
  if (page.state.query) return empty("No topic has this text in its name.");
  return empty(
    "There is no topic yet.",
    h("p", null, "Create one below, or write to one with a client; the cluster makes it:"),
    command(
      `echo hello | kcat -b ${page.bootstrap} -P -t my-topic`,
      `kafka-console-producer.sh --bootstrap-server ${page.bootstrap} --topic my-topic`,
    ),
    data.hidden ? h("p", { class: "soft" }, `${plural(data.hidden, "internal topic")} not shown.`) : null,
  );
}

function form(page) {
  return h(
    "details",
    { class: "card", key: "create" },
    h("summary", null, "Create a topic"),
    h(
      "form",
      { onsubmit: (event) => page.submit(event, (form) => create(form, page)) },
      field("Name", h("input", { name: "topic", required: true, maxlength: "249", autocomplete: "off", spellcheck: "false" })),
      field("Partitions", number("partitions"), "empty: num.partitions of the brokers"),
      field("Replicas", number("replicas"), "empty: default.replication.factor of the brokers"),
      field(
        "Configs",
        h("textarea", { name: "configs", rows: "2", spellcheck: "false", placeholder: "retention.ms=60000" }),
        "one name=value on each line",
      ),
      h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Create topic")),
      outcome(page.state.outcome),
    ),
  );
}

function number(name) {
  return h("input", { name, type: "number", min: "1", step: "1", inputmode: "numeric" });
}

async function create(form, page) {
  const configs = {};
  for (const line of form.get("configs").split("\n").filter((one) => one.trim())) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`The config “${line.trim()}” has no form name=value.`);
    configs[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  const topic = form.get("topic").trim();
  const wanted = { topic, configs };
  for (const name of ["partitions", "replicas"]) {
    if (form.get(name)) wanted[name] = Number(form.get(name));
  }
  await change("api/topics", wanted);
  page.reload();
  return `Topic ${topic} is created.`;
}
