// Requests of the pages: documents, the live stream, actions.

// Relative to the page, so that a proxy may serve the console below a path.
const base = new URL('console/api/', document.baseURI);
const tokenKey = 'kubeweir-console-token';

/** Refused is an error response, or no response at all (status 0). */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** keepToken stores the token until the tab is closed; null removes it. */
export function keepToken(token) {
  if (token === null) sessionStorage.removeItem(tokenKey);
  else sessionStorage.setItem(tokenKey, token);
}

export const hasToken = () => sessionStorage.getItem(tokenKey) !== null;

async function send(path, { query, body, action, signal } = {}) {
  const url = new URL(path, base);
  for (const [name, value] of Object.entries(query ?? {})) if (value) url.searchParams.set(name, value);
  const headers = new Headers();
  const token = sessionStorage.getItem(tokenKey);
  if (token !== null) headers.set('Authorization', `Bearer ${token}`);
  if (body) headers.set('Content-Type', 'application/json');
  if (action) headers.set('X-Kubeweir-Console', '1');
  let response;
  try {
    response = await fetch(url, {
      method: body ? 'POST' : 'GET', headers, body: body && JSON.stringify(body), signal,
      cache: 'no-store', credentials: 'same-origin', redirect: 'error',
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, 'kubeweir does not respond.');
  }
  if (response.ok) return response;
  const text = await response.text();
  let message = `${response.status} ${response.statusText}`;
  try {
    message = JSON.parse(text).error || message;
  } catch {
    // The response is not from the console but from a proxy in between: show its status.
  }
  throw new Refused(response.status, message);
}

/** get fetches a document. */
export const get = async (path, query, signal) => (await send(path, { query, signal })).json();

/** explain asks how kubeweir would serve a request. */
export const explain = async (request) => (await send('explain', { body: request })).json();

/** act performs an action. */
export const act = async (name, order) => (await send(`actions/${name}`, { body: order, action: true })).json();

// The largest event accepted, so that a broken stream cannot fill the tab.
const maxEvent = 16 << 20;

/** events yields the server-sent events of a stream, until it ends or signal is aborted. */
export async function* events(query, signal) {
  const response = await send('events', { query, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    // Search only the new text, and the byte before it, for the end of an event.
    const from = Math.max(0, text.length - 1);
    text += value;
    let begin = 0;
    for (let end = text.indexOf('\n\n', from); end >= 0; end = text.indexOf('\n\n', begin)) {
      const event = parse(text.slice(begin, end));
      begin = end + 2;
      if (event) yield event;
    }
    text = text.slice(begin);
    if (text.length > maxEvent) throw new Refused(0, 'A live stream event is too large.');
  }
}

function parse(block) {
  let name = 'message';
  const data = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('event:')) name = line.slice(6).trim();
    else if (line.startsWith('data:')) data.push(line.slice(5));
  }
  return data.length ? { name, document: JSON.parse(data.join('\n')) } : null;
}
