// The status of the controller: what status.json has.

import { read } from "./api.js";
import { h } from "./dom.js";
import { table } from "./parts.js";
import { count, time, zone } from "./text.js";

// Requests that wait for longer are shown in colour.
const SLOW_SECONDS = 5;
const LISTED = 100;

// Figures on top: label, key, class where the number is not 0.
const FIGURES = [
  ["brokers", "active_brokers", ""],
  ["topics", "topics", ""],
  ["partitions", "partitions", ""],
  ["offline", "offline_partitions", "bad"],
  ["not preferred leader", "preferred_replica_imbalance", "warn"],
  ["reassigning", "reassigning_partitions", ""],
  ["topics to delete", "topics_to_delete", ""],
];
const BROKERS = [
  ["Broker", "n"],
  ["Address", "name"],
  ["Rack", ""],
  ["Connection", ""],
  ["Leads", "n"],
  ["Replicas", "n"],
  ["Not in sync", "n"],
  ["Requests", "n"],
  ["Oldest", "n"],
  ["Error", "name"],
];
const PARTITIONS = [
  ["Partition", "name"],
  ["Replicas", ""],
  ["Adding", ""],
  ["Removing", ""],
  ["In sync", ""],
  ["Leader", "n"],
];

export const controller = {
  tab: "controller",
  title: ({ data }) => (data ? `Controller ${data.controller_id}: ${state(data)}` : "Controller"),
  load: () => read("status.json"),
  show: (status) => [
    h(
      "h1",
      { key: "title", tabindex: "-1" },
      `Controller ${status.controller_id} `,
      h("span", { class: status.active ? "fine" : "soft" }, state(status)),
    ),
    head(status).map((line, place) => h("p", { class: "soft", key: `head ${place}` }, line)),
    status.refusal ? h("p", { class: "bad", key: "refusal" }, `This controller may not be elected: ${status.refusal}`) : null,
    status.busy
      ? h("p", { class: "warn", key: "busy" }, `The event loop is busy: the cluster as it was ${(status.now - status.at).toFixed(0)} s ago.`)
      : null,
    status.active ? cluster(status) : null,
    section("Events", [[`At (${zone()})`, "time"], ["What happened", "name"]], recent(status.recent ?? [])),
  ],
};

function state(status) {
  return status.active ? "active" : "not the controller";
}

function cluster(status) {
  const { figures } = status;
  return [
    h(
      "div",
      { class: "figures", key: "figures" },
      FIGURES.map(([label, key, kind]) =>
        h("div", { class: "figure" }, h("b", { class: figures[key] ? kind : "" }, count(figures[key])), h("span", null, label)),
      ),
    ),
    section("Brokers", BROKERS, status.brokers.map(broker), status.brokers.length, true),
    section("Offline partitions", PARTITIONS, status.offline.map(partition), figures.offline_partitions),
    section("Reassignments", PARTITIONS, status.reassignments.map(partition), figures.reassigning_partitions),
    section(
      "Topics to delete",
      [["Topic", "name"], ["State", ""], ["Deleted replicas", "n"]],
      status.deletions.map(deletion),
      figures.topics_to_delete,
    ),
    malformed(status.malformed ?? {}),
  ];
}

function head(status) {
  const lines = [];
  if (status.active) {
    const since = status.active_since === null ? "" : ` since ${time(status.active_since * 1000).slice(0, 19)}`;
    lines.push(`Controller epoch ${status.epoch}${since} · cluster ${status.cluster_id ?? "unknown"}`);
  } else if (status.active_controller_id !== null) {
    lines.push(`The controller is ${status.active_controller_id}`);
  }
  const { servers, in_memory: inMemory, connected, silent_for: silent } = status.zookeeper;
  const nodes = inMemory ? "Nodes in memory" : `ZooKeeper ${servers}`;
  lines.push(`${nodes}: ${connected ? `answered ${silent.toFixed(1)} s ago` : "not connected"}`);
  const answers = status.endpoints.join(", ") || "no listener";
  lines.push(`${answers} · inter-broker protocol ${status.inter_broker_protocol}`);
  lines.push(`Event loop: ${status.events.state}, ${count(status.events.waiting)} events wait`);
  return lines;
}

function section(title, columns, rows, total = rows.length, always = false) {
  if (!rows.length && !always) return null;
  return [
    h("h2", { key: `title ${title}` }, title),
    total > rows.length
      ? h("p", { class: "soft", key: `first ${title}` }, `The first ${count(rows.length)} of ${count(total)}.`)
      : null,
    table(title, columns, rows),
  ];
}

function broker(one) {
  const connection = one.connection + (one.shutting_down ? ", shutting down" : "");
  const failing = one.attempts || one.connection === "left out";
  const warn = (condition, text) => (condition ? h("span", { class: "warn" }, text) : text || null);
  return {
    key: String(one.id),
    cells: [
      one.id,
      one.endpoints.join(", "),
      one.rack,
      warn(!["connected", "idle"].includes(connection), connection),
      count(one.leads),
      count(one.replicas),
      warn(one.out_of_sync, count(one.out_of_sync)),
      count(one.waiting),
      warn(one.oldest_age > SLOW_SECONDS, one.waiting ? `${one.oldest_age.toFixed(1)} s` : ""),
      failing ? h("span", { class: "bad" }, one.last_error) : null,
    ],
  };
}

function partition(one) {
  return {
    key: `${one.topic}-${one.partition}`,
    cells: [
      `${one.topic}-${one.partition}`,
      ...[one.replicas, one.adding, one.removing, one.isr].map((ids) => ids.join(", ") || null),
      one.leader < 0 ? "none" : one.leader,
    ],
  };
}

function deletion(one) {
  return {
    key: one.topic,
    cells: [
      one.topic,
      h("span", { class: one.state === "ineligible" ? "warn" : null }, one.state),
      `${count(one.deleted)} of ${count(one.replicas)}`,
    ],
  };
}

function malformed(kinds) {
  const rows = Object.values(kinds)
    .flatMap(Object.entries)
    .map(([path, reason]) => ({ key: path, cells: [path, h("span", { class: "bad" }, reason)] }));
  const columns = [["Path", "name"], ["Reason", "name"]];
  return section("Nodes that cannot be read", columns, rows.slice(0, LISTED), rows.length);
}

function recent(lines) {
  return lines
    .map(({ at, text }, place) => ({ key: `${at} ${place}`, cells: [time(at * 1000).slice(0, 19), text] }))
    .reverse();
}
