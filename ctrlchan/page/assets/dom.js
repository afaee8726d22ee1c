// Describes elements as objects and changes the document to match them. What did not change is not touched,
// so scroll positions, selections, focus, open details and what the user has typed stay. All data becomes
// text nodes and attributes: no function here takes HTML.

// Attributes that the user changes: they are set once, when the element is made.
const INITIAL = new Set(["value", "checked", "open"]);

// An element. ``key`` among the attributes names it among its siblings; ``on…`` attributes are functions.
export function h(tag, attributes, ...children) {
  return {
    tag,
    attributes: attributes ?? {},
    children: children
      .flat(Infinity)
      .filter((one) => one !== null && one !== undefined && one !== false && one !== "")
      .map((one) => (typeof one === "object" ? one : String(one))),
  };
}

// Make the children of ``parent`` match.
export function update(parent, children) {
  const keyed = new Map();
  const unkeyed = [];
  for (const node of parent.childNodes) {
    const key = node.made?.attributes?.key;
    if (key === undefined) unkeyed.push(node);
    else keyed.set(key, node);
  }
  let place = parent.firstChild;
  for (const child of children) {
    const node = taken(child, keyed, unkeyed);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
  while (place !== null) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

// Return the node that is changed to match ``child``, or a new one.
function taken(child, keyed, unkeyed) {
  const key = child.attributes?.key;
  let node;
  if (key !== undefined) {
    node = keyed.get(key);
    keyed.delete(key);
  } else {
    const at = unkeyed.findIndex((one) => tagOf(one) === tagOf({ made: child }));
    if (at >= 0) [node] = unkeyed.splice(0, at + 1).slice(-1);
  }
  if (node === undefined || tagOf(node) !== tagOf({ made: child })) return made(child);
  if (typeof child === "string") {
    if (node.data !== child) node.data = child;
  } else {
    setAttributes(node, node.made.attributes, child.attributes);
    update(node, child.children);
  }
  node.made = child;
  return node;
}

function tagOf(node) {
  return typeof node.made === "string" ? "#text" : node.made?.tag;
}

function made(child) {
  const node =
    typeof child === "string" ? document.createTextNode(child) : document.createElement(child.tag);
  node.made = child;
  if (typeof child !== "string") {
    update(node, child.children);
    setAttributes(node, {}, child.attributes);
    for (const name of INITIAL) {
      if (name in child.attributes) node[name] = child.attributes[name];
    }
  }
  return node;
}

function setAttributes(node, before, after) {
  for (const name of Object.keys({ ...before, ...after })) {
    const value = after[name];
    if (name === "key" || INITIAL.has(name) || before[name] === value) continue;
    if (name.startsWith("on")) node[name] = typeof value === "function" ? value : null;
    else if (value === undefined || value === null || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
}
