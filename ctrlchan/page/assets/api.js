// Asks the server. Every function throws an Error whose message is for people.

const SECONDS = 30;

export function read(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return answer(text ? `${path}?${text}` : path, {});
}

export function change(path, body) {
  return answer(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

async function answer(url, options) {
  let response;
  try {
    response = await fetch(url, { ...options, signal: AbortSignal.timeout(SECONDS * 1000) });
  } catch (error) {
    throw new Error(
      error.name === "TimeoutError"
        ? `No answer in ${SECONDS} seconds.`
        : "The page's server does not answer: has the command ended?",
    );
  }
  let value;
  try {
    value = await response.json();
  } catch {
    throw new Error(`The answer is not what the page expects (HTTP status ${response.status}).`);
  }
  if (!response.ok) throw new Error(sentence(value.error ?? `HTTP status ${response.status}`));
  return value;
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (text.endsWith(".") ? "" : ".");
}
