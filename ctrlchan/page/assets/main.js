// Chooses the view by the address, asks for its data again and again, and draws it.

import { read } from "./api.js";
import { controller } from "./controller.js";
import { h, update } from "./dom.js";
import { group, groups } from "./groups.js";
import { topic } from "./topic.js";
import { topics } from "./topics.js";

const REFRESH_MS = 2_000;
// After the last key in a filter.
const TYPING_MS = 200;
const NAMES = { topics: "Topics", groups: "Groups", controller: "Controller" };

let shell = { views: [], bootstrap_servers: "" };
let live = true;
let page;
let timer;

// A page: one view with the parts of its address, its data and what the user has chosen in it.
class Page {
  constructor(hash) {
    const [path, query] = hash.replace(/^#\/?/, "").split("?");
    this.hash = hash;
    this.path = path.split("/").filter(Boolean).map(decoded);
    this.query = new URLSearchParams(query ?? "");
    this.state = {};
    this.data = null;
    this.turn = 0;
    this.view = this.#view();
  }

  #view() {
    const [first, second] = this.path;
    if (!shell.views.includes("topics")) return controller;
    if (first === "groups") return second === undefined ? groups : group;
    if (first === "controller") return controller;
    return first === "topics" && second !== undefined ? topic : topics;
  }

  get bootstrap() {
    return shell.bootstrap_servers;
  }

  // Change the state and ask again.
  set(change) {
    Object.assign(this.state, change);
    schedule(TYPING_MS);
  }

  // Change the state and draw the same data.
  draw(change) {
    Object.assign(this.state, change);
    draw();
  }

  reload() {
    schedule(0);
  }

  // Send a form. ``send`` returns what to say about it, and throws an Error that says why not.
  async submit(event, send) {
    event.preventDefault();
    const button = event.target.querySelector("button[type=submit]");
    button.disabled = true;
    this.draw({ outcome: { text: "" } });
    try {
      this.draw({ outcome: { text: await send(new FormData(event.target)) } });
    } catch (error) {
      this.draw({ outcome: { text: error.message, failed: true } });
    } finally {
      button.disabled = false;
    }
  }
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function schedule(milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(refresh, milliseconds);
}

async function refresh() {
  const mine = page;
  const turn = ++mine.turn;
  clearTimeout(timer);
  let problem = null;
  try {
    if (!shell.views.length) {
      shell = await read("api/views");
      if (mine === page) return go();
    }
    const data = await mine.view.load(mine);
    if (mine !== page || turn !== mine.turn) return;
    if (mine.data === null) arrive(mine);
    mine.data = data;
  } catch (error) {
    problem = error.message;
  }
  if (mine !== page || turn !== mine.turn) return;
  say(problem);
  draw();
  if (mine.focus) document.querySelector(mine.focus)?.focus({ preventScroll: true });
  mine.focus = null;
  if ((live || problem) && !document.hidden) schedule(REFRESH_MS);
}

// Show what is wrong above the last data, or instead of them.
function say(problem) {
  const place = document.getElementById("problem");
  place.hidden = problem === null;
  if (place.textContent !== (problem ?? "")) place.textContent = problem ?? "";
}

function draw() {
  update(document.getElementById("header"), header());
  const main = document.getElementById("main");
  if (page.data !== null) update(main, h("main", null, page.view.show(page.data, page)).children);
  else if (!document.getElementById("problem").hidden) update(main, []);
  document.title = shell.views.length ? `${page.view.title(page)} – Kafka cluster` : "Kafka cluster";
}

function header() {
  return [
    h(
      "nav",
      { "aria-label": "Page" },
      shell.views.map((name) =>
        h("a", { href: `#/${name}`, "aria-current": page.view.tab === name ? "page" : null }, NAMES[name]),
      ),
    ),
    h(
      "label",
      { class: "check" },
      h("input", {
        type: "checkbox",
        id: "live",
        checked: live,
        onchange: (event) => {
          live = event.target.checked;
          if (live) schedule(0);
          else clearTimeout(timer);
        },
      }),
      "Live",
    ),
  ];
}

// Make room for the first data of a page. The focus goes to its title, so that a screen reader begins there,
// or to the tab of a topic that was chosen.
function arrive({ before, view, path }) {
  const main = document.getElementById("main");
  if (before !== undefined && before.view === view && String(before.path) === String(path)) return;
  update(main, []);
  if (before?.data === null || before === undefined) return;
  scrollTo(0, 0);
  page.focus = before.view === view && before.path[1] === path[1] ? ".tabs [aria-current]" : "h1";
}

// Show the page of the address. The one before stays until there are data.
function go() {
  const before = page;
  page = new Page(location.hash);
  page.before = before;
  if (before?.view === page.view) page.state.as = before.state.as;
  if (before) before.before = undefined;
  say(null);
  draw();
  refresh();
}

addEventListener("hashchange", () => {
  // The link that skips to the content is no page.
  if (location.hash !== "#main") go();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && live) schedule(0);
});
go();
