// The list of consumer groups, and one group with its members and offsets.

import { read } from "./api.js";
import { h } from "./dom.js";
import { command, empty, field, notes, table } from "./parts.js";
import { count, printable } from "./text.js";

const GROUPS = [
  ["Group", "name"],
  ["State", ""],
  ["Members", "n"],
  ["Lag", "n"],
  ["Topics", "name"],
];
const MEMBERS = [
  ["Member", "name"],
  ["Client", "name"],
  ["Host", ""],
  ["Partitions", "name"],
];
const OFFSETS = [
  ["Topic", "name"],
  ["Partition", "n"],
  ["Committed", "n"],
  ["End offset", "n"],
  ["Lag", "n"],
  ["Member", "name"],
];
const LISTED_TOPICS = 5;

export const groups = {
  tab: "groups",
  title: () => "Groups",
  load: (page) => read("api/groups", { query: page.state.query }),
  show: (data, page) => [
    h("h1", { key: "title", tabindex: "-1" }, "Consumer groups"),
    h(
      "div",
      { class: "bar", key: "filters" },
      field(
        "Id contains",
        h("input", {
          id: "filter",
          type: "search",
          autocomplete: "off",
          spellcheck: "false",
          value: page.state.query ?? "",
          oninput: (event) => page.set({ query: event.target.value }),
        }),
      ),
    ),
    notes(data.notes, data.groups.length, data.total, "groups"),
    data.groups.length ? table("Groups", GROUPS, data.groups.map(row)) : nothing(page),
  ],
};

export const group = {
  tab: "groups",
  title: (page) => page.path[1],
  load: (page) => read("api/group", { group: page.path[1] }),
  show: (data) => [
    h("h1", { key: "title", tabindex: "-1" }, printable(data.group) || "(empty id)"),
    h("p", { class: "soft", key: "head" }, head(data)),
    notes(data.notes, data.offsets.length, data.total_offsets, "partitions"),
    h("h2", { key: "members" }, "Members"),
    data.members.length
      ? [notes([], data.members.length, data.total_members, "members"), table("Members", MEMBERS, data.members.map(member))]
      : h("p", { class: "soft", key: "none" }, "No member: the group's consumers are not running."),
    h("h2", { key: "offsets" }, "Offsets"),
    data.offsets.length
      ? table("Offsets", OFFSETS, data.offsets.map(offset))
      : h("p", { class: "soft", key: "no offsets" }, "Nothing is committed yet."),
  ],
};

function row(one) {
  const more = one.topics.length - LISTED_TOPICS;
  return {
    key: one.group,
    cells: [
      h("a", { href: `#/groups/${encodeURIComponent(one.group)}` }, printable(one.group) || "(empty id)"),
      one.state,
      count(one.members),
      h("span", { class: one.lag ? "warn" : null }, count(one.lag)),
      one.topics.slice(0, LISTED_TOPICS).join(", ") + (more > 0 ? ` and ${more} more` : ""),
    ],
  };
}

function head(data) {
  const lag = data.offsets.reduce((sum, one) => sum + (one.lag ?? 0), 0);
  const parts = [data.state, `lag ${count(lag)}`];
  if (data.assignor) parts.push(`assignor ${data.assignor}`);
  return printable(parts.join(" · "));
}

function member(one) {
  const assigned = Object.entries(one.assignment).map(([topic, numbers]) => `${topic}: ${numbers.join(", ")}`);
  return {
    key: one.member_id,
    cells: [
      printable(one.instance ? `${one.member_id} (static: ${one.instance})` : one.member_id),
      printable(one.client_id),
      printable(one.host),
      assigned.length ? printable(assigned.join("; ")) : h("em", null, "none"),
    ],
  };
}

function offset(one) {
  return {
    key: `${one.topic}-${one.partition}`,
    cells: [
      h("a", { href: `#/topics/${encodeURIComponent(one.topic)}/messages?partition=${one.partition}` }, printable(one.topic)),
      one.partition,
      count(one.committed),
      count(one.end),
      h("span", { class: one.lag ? "warn" : null }, count(one.lag)),
      one.member ? printable(one.member) : null,
    ],
  };
}

function nothing(page) {
  if (page.state.query) return empty("No group has this text in its id.");
  return empty(
    "There is no consumer group yet.",
    h("p", null, "A consumer with a group.id makes one:"),
    command(
      `kcat -b ${page.bootstrap} -G my-group my-topic`,
      `kafka-console-consumer.sh --bootstrap-server ${page.bootstrap} --topic my-topic --group my-group`,
    ),
  );
}
