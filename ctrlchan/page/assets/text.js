// Numbers, times and the bytes of messages as text.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const HEX_COLUMNS = 16;

export function count(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en");
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let unit = 0;
  let number = bytes;
  while (number >= 1024 && unit < UNITS.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${unit ? number.toFixed(1) : number} ${UNITS[unit]}`;
}

export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

// Milliseconds since 1970 in the time zone of the browser. A producer may write any number.
export function time(milliseconds) {
  const date = new Date(milliseconds);
  if (milliseconds < 0 || Number.isNaN(date.getTime())) return `${milliseconds}`;
  const local = new Date(milliseconds - date.getTimezoneOffset() * 60_000);
  if (Number.isNaN(local.getTime())) return `${milliseconds}`;
  return local.toISOString().replace("T", " ").replace("Z", "");
}

// The time zone of ``time``, for headings.
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const two = (number) => String(Math.floor(Math.abs(number))).padStart(2, "0");
  return `UTC${minutes < 0 ? "−" : "+"}${two(minutes / 60)}:${two(minutes % 60)}`;
}

export function bytesOf(data) {
  return Uint8Array.from(atob(data.base64), (one) => one.charCodeAt(0));
}

// How the bytes are shown: "text", "json" or "hex". ``wanted``: the user's choice, or "auto".
export function kindOf(data, wanted) {
  if (wanted === "hex") return "hex";
  const text = decoded(data);
  if (text === null) return "hex";
  if (wanted === "text") return "text";
  if (isJson(text)) return "json";
  return wanted === "auto" && hasControl(text) ? "hex" : "text";
}

export function shownAs(data, kind) {
  if (kind === "hex") return hexDump(bytesOf(data));
  const text = decoded(data);
  return visible(kind === "json" ? indented(text) : text);
}

// One line for a list.
export function preview(data, kind) {
  if (kind === "hex") return hex(bytesOf(data).slice(0, 48));
  return visible(decoded(data).slice(0, 300).replace(/\s+/g, " "));
}

// The text of UTF-8 bytes, or null. The last character may be cut.
function decoded(data) {
  const bytes = bytesOf(data);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes, {
      stream: bytes.length < data.size,
    });
  } catch {
    return null;
  }
}

function isJson(text) {
  if (!/^\s*[[{"\d-]|^\s*(true|false|null)\s*$/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

// Valid JSON with line ends and spaces. Numbers stay as they are written: parsing would round long ones.
function indented(text) {
  let depth = 0;
  const parts = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g) ?? [];
  const line = () => `\n${"  ".repeat(depth)}`;
  let out = "";
  parts.forEach((part, place) => {
    const after = parts[place + 1];
    if (part === "{" || part === "[") {
      depth += 1;
      out += part + (after === "}" || after === "]" ? "" : line());
    } else if (part === "}" || part === "]") {
      depth -= 1;
      const before = parts[place - 1];
      out += (before === "{" || before === "[" ? "" : line()) + part;
    } else if (part === ",") out += part + line();
    else out += part === ":" ? ": " : part;
  });
  return out;
}

function hasControl(text) {
  return /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/.test(text);
}

// Control characters as the signs that Unicode has for them; those that turn or hide text as their numbers.
function visible(text) {
  return text
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (one) => String.fromCharCode(0x2400 + one.charCodeAt(0)))
    .replace(/\u007f/g, "␡")
    .replace(
      /[\u0080-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
      (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
}

export function printable(text) {
  return visible(text).replace(/\n/g, "␊").replace(/\t/g, "␉");
}

function hex(bytes) {
  return Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join(" ");
}

function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += HEX_COLUMNS) {
    const some = bytes.slice(at, at + HEX_COLUMNS);
    const signs = Array.from(some, (one) => (one >= 32 && one < 127 ? String.fromCharCode(one) : "."));
    const place = at.toString(16).padStart(6, "0");
    lines.push(`${place}  ${hex(some).padEnd(HEX_COLUMNS * 3 - 1)}  ${signs.join("")}`);
  }
  return lines.join("\n");
}
