// One topic: its frame with tabs, partitions, configs, and its deletion.

import { change, read } from "./api.js";
import { h } from "./dom.js";
import { messages } from "./messages.js";
import { notes, outcome, table } from "./parts.js";
import { producing } from "./producing.js";
import { count, size } from "./text.js";

const PARTITIONS = [
  ["Partition", "n"],
  ["Leader", "n"],
  ["Replicas", ""],
  ["In sync", ""],
  ["First offset", "n"],
  ["End offset", "n"],
  ["Size", "n"],
  ["Problem", ""],
];
const CONFIGS = [
  ["Config", "name"],
  ["Value", "name"],
  ["From", ""],
];

const partitions = {
  name: "Partitions",
  load: (page) => read("api/topic", { topic: page.path[1] }),
  show: (data) => [
    notes(data.notes, data.partitions.length, data.total, "partitions"),
    table("Partitions", PARTITIONS, data.partitions.map(partition)),
  ],
};

const configs = {
  name: "Configs",
  load: partitions.load,
  show: (data) => [
    notes(data.notes, 0, 0, ""),
    table("Configs", CONFIGS, data.configs.map(config)),
    h("p", { class: "soft", key: "how" }, "Configs that are set for this topic come first."),
  ],
};

const tabs = { messages, partitions, produce: producing, configs };

function tabOf(page) {
  return tabs[page.path[2]] ?? messages;
}

export const topic = {
  tab: "topics",
  title: (page) => page.path[1],
  load: (page) => tabOf(page).load(page),
  show: (data, page) => [
    h(
      "div",
      { class: "bar title", key: "title" },
      h("h1", { tabindex: "-1" }, page.path[1]),
      h("button", { class: "danger", type: "button", onclick: () => askDeletion() }, "Delete topic…"),
    ),
    h(
      "nav",
      { class: "tabs", "aria-label": "Topic", key: "tabs" },
      Object.entries(tabs).map(([name, tab]) =>
        h(
          "a",
          {
            href: `#/topics/${encodeURIComponent(page.path[1])}/${name}`,
            "aria-current": tab === tabOf(page) ? "page" : null,
          },
          tab.name,
        ),
      ),
    ),
    h("section", { key: tabOf(page).name, "aria-label": tabOf(page).name }, tabOf(page).show(data, page)),
    deletion(page),
  ],
};

function partition(one) {
  const behind = one.replicas.filter((broker) => !one.isr.includes(broker));
  return {
    key: String(one.partition),
    cells: [
      one.partition,
      one.leader ?? h("span", { class: "bad" }, "none"),
      one.replicas.join(", "),
      behind.length ? h("span", { class: "warn" }, one.isr.join(", ") || "none") : one.isr.join(", "),
      count(one.begin),
      count(one.end),
      size(one.size),
      one.problem ? h("span", { class: "bad" }, one.problem) : null,
    ],
  };
}

function config(one) {
  const own = one.source === "topic";
  return {
    key: one.name,
    cells: [
      h("code", { class: own ? "own" : null }, one.name),
      one.value === null ? h("em", null, "hidden") : one.value === "" ? h("em", null, "empty") : h("code", { class: own ? "own" : null }, one.value),
      one.source,
    ],
  };
}

function dialog() {
  return document.getElementById("deletion");
}

function askDeletion() {
  dialog().querySelector("form").reset();
  dialog().showModal();
}

function deletion(page) {
  return h(
    "dialog",
    { id: "deletion", key: "deletion", "aria-labelledby": "deletion-title" },
    h("h2", { id: "deletion-title" }, `Delete ${page.path[1]}?`),
    h("p", null, "All of its messages are lost. Type its name to go on."),
    h(
      "form",
      { onsubmit: (event) => page.submit(event, (form) => remove(form, page)) },
      h("input", { name: "name", "aria-label": "Name of the topic", autocomplete: "off", spellcheck: "false" }),
      h(
        "div",
        { class: "actions" },
        h("button", { type: "submit", class: "danger" }, "Delete topic"),
        h("button", { type: "button", onclick: () => dialog().close() }, "Keep it"),
      ),
      outcome(page.state.outcome),
    ),
  );
}

async function remove(form, page) {
  if (form.get("name").trim() !== page.path[1]) throw new Error("This is not the name of the topic.");
  await change("api/topics/delete", { topic: page.path[1] });
  dialog().close();
  location.hash = "#/topics";
  return "";
}
