// Elements have a name, attributes and children. Text is never markup: clients choose the names that the console shows.

const SVG = 'http://www.w3.org/2000/svg';

/** el makes an HTML element. An attribute that is a function listens to the event of its name without "on". */
export function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** svg makes an SVG element, which has attributes where HTML would need styles. */
export function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(typeof child === 'string' ? shown(child) : child);
  }
  return element;
}

/** set sets an attribute if it differs, adds an event listener, or removes the attribute if the value is null or false. */
export function set(element, name, value) {
  if (typeof value === 'function') element.addEventListener(name.slice(2), value);
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else {
    const text = value === true ? '' : String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

const unseen = /[\p{Cc}\p{Cf}]/gu;

/** shown escapes control characters, so that no name can hide or reverse the text around it. */
const shown = (text) => text.replace(unseen, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

/** write sets an element's text. It changes nothing if the text is the same, so that screen readers stay silent. */
export function write(element, value) {
  const text = shown(value);
  const only = element.firstChild;
  if (only instanceof Text && only === element.lastChild) {
    if (only.data !== text) only.data = text;
  } else if (element.textContent !== text || only) {
    element.textContent = text;
  }
}

/** arrange makes nodes the children of parent, in this order, without moving nodes that are in place. */
export function arrange(parent, nodes) {
  const keep = new Set(nodes);
  for (const child of [...parent.childNodes]) if (!keep.has(child)) child.remove();
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
}

let ids = 0;

/** newID returns a unique element id. */
export const newID = (prefix) => `${prefix}-${++ids}`;
