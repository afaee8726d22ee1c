// The form that writes a message.

import { change, read } from "./api.js";
import { h } from "./dom.js";
import { field, options, outcome } from "./parts.js";
import { count } from "./text.js";

const KINDS = [
  ["text", "text"],
  ["json", "JSON"],
  ["hex", "hex"],
];
const NULL = ["null", "null"];

export const producing = {
  name: "Produce",
  // The number of partitions may change.
  load: (page) => read("api/topic", { topic: page.path[1] }),
  show: (data, page) =>
    h(
      "form",
      { class: "card", key: "produce", onsubmit: (event) => page.submit(event, (form) => produce(form, page)) },
      bytes("Key", "key", KINDS, "1", "empty: no key"),
      bytes("Value", "value", [...KINDS, NULL], "6"),
      h(
        "fieldset",
        null,
        h("legend", null, "Headers"),
        (page.state.headers ?? []).map((id, place) => header(id, place, page)),
        h(
          "button",
          { type: "button", key: "add", onclick: () => page.draw({ headers: [...(page.state.headers ?? []), Math.random()] }) },
          "Add a header",
        ),
      ),
      field(
        "Partition",
        h("input", { name: "partition", type: "number", min: "0", max: String(data.total - 1), step: "1", placeholder: "any" }),
        `empty: chosen by the key, or any; this topic has 0 to ${data.total - 1}`,
      ),
      h("div", { class: "actions" }, h("button", { type: "submit", class: "main" }, "Produce message")),
      outcome(page.state.outcome),
    ),
};

function bytes(label, name, kinds, rows, hint) {
  return h(
    "div",
    { class: "bytes", key: name },
    field(label, h("textarea", { name, rows, spellcheck: "false" }), hint),
    field(`${label} is`, h("select", { name: `${name}-kind` }, options(kinds, "text"))),
  );
}

function header(id, place, page) {
  return h(
    "div",
    { class: "bar", key: String(id) },
    field(`Name ${place + 1}`, h("input", { name: "header-name", required: true, autocomplete: "off" })),
    field(`Value ${place + 1}`, h("input", { name: "header-value", autocomplete: "off" })),
    h(
      "button",
      { type: "button", "aria-label": `Remove header ${place + 1}`, onclick: () => page.draw({ headers: page.state.headers.filter((one) => one !== id) }) },
      "Remove",
    ),
  );
}

async function produce(form, page) {
  const names = form.getAll("header-name");
  const values = form.getAll("header-value");
  const message = {
    topic: page.path[1],
    key: data(form, "key"),
    value: data(form, "value"),
    headers: names.map((name, place) => ({ name, value: { text: values[place] } })),
  };
  if (form.get("partition")) message.partition = Number(form.get("partition"));
  const { partition, offset } = await change("api/messages", message);
  return `Written to partition ${partition} with offset ${count(offset)}.`;
}

function data(form, name) {
  const text = form.get(name).replaceAll("\r\n", "\n");
  const kind = form.get(`${name}-kind`);
  if (kind === "null" || (name === "key" && text === "")) return null;
  if (kind === "hex") return { hex: text };
  if (kind === "json") {
    try {
      JSON.parse(text);
    } catch (error) {
      throw new Error(`The ${name} is not JSON: ${error.message}`);
    }
  }
  return { text };
}
