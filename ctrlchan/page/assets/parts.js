// Parts that several views use: tables, notes, fields of forms.

import { h } from "./dom.js";
import { count } from "./text.js";

// A table. ``columns``: [heading, class]; a row: {key, cells}, or {key, wide} with one cell over all columns.
// In a narrow window each row is a card, in which every cell has its heading; the roles keep it a table for
// screen readers.
export function table(caption, columns, rows) {
  return h(
    "div",
    { class: "scroll", key: `table ${caption}` },
    h(
      "table",
      { role: "table" },
      h("caption", { class: "hidden" }, caption),
      h(
        "thead",
        { role: "rowgroup" },
        h(
          "tr",
          { role: "row" },
          columns.map(([heading, kind]) =>
            h("th", { role: "columnheader", scope: "col", class: kind }, heading),
          ),
        ),
      ),
      h(
        "tbody",
        { role: "rowgroup" },
        rows.map(({ key, cells, wide }) =>
          h(
            "tr",
            { key, role: "row", class: wide ? "wide" : null },
            wide
              ? h("td", { role: "cell", colspan: columns.length }, wide)
              : cells.map((cell, place) =>
                  h("td", { role: "cell", class: columns[place][1], "data-heading": columns[place][0] }, cell),
                ),
          ),
        ),
      ),
    ),
  );
}

// What the server says about an answer, and how much of it is shown.
export function notes(lines, shown, total, noun) {
  const all = [...lines];
  if (total > shown) all.unshift(`The first ${count(shown)} of ${count(total)} ${noun} are shown.`);
  return all.length ? h("ul", { class: "notes", key: "notes" }, all.map((one) => h("li", null, one))) : null;
}

export function empty(title, ...parts) {
  return h("div", { class: "empty", key: "empty" }, h("p", null, h("strong", null, title)), parts);
}

export function command(...lines) {
  return h("pre", { tabindex: "0" }, lines.join("\n"));
}

export function field(label, input, hint) {
  return h("label", { class: "field" }, h("span", null, label), input, hint ? h("small", null, hint) : null);
}

export function options(choices, chosen) {
  return choices.map(([value, text]) =>
    h("option", { value, selected: value === chosen }, text),
  );
}

export function outcome(state) {
  const { text, failed } = state ?? {};
  return h("p", { role: "status", class: failed ? "outcome bad" : "outcome fine", key: "outcome" }, text ?? "");
}
