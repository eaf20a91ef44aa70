// Parts that several pages share.

import { el, set, write } from './dom.js';
import { state } from './draw.js';
import { time } from './format.js';

/** resource returns the name of a resource as kubectl takes it. */
export const resource = ({ group, resource: name }) => (group ? `${name}.${group}` : name);

/** version returns the API version and encoding of a collection. */
export const version = ({ group, version: v, encoding }) => `${group ? `${group}/` : ''}${v}, ${encoding}`;

/** key identifies a row. */
export const key = (...parts) => JSON.stringify(parts);

/** clusterColumn is the column of cluster names, if rows belong to several clusters. */
export const clusterColumn = (app) => (app.several ? [{ title: 'Cluster', text: (r) => r.cluster ?? '', by: (r) => r.cluster ?? '' }] : []);

/** when is a column of times. */
export const when = (title, of) => ({ title, text: (r) => time(of(r)), by: (r) => of(r) ?? '', most: true, class: 'when' });

/** section is a part of a page with a heading. */
export function section(title, ...nodes) {
  return el('section', null, el('h2', null, title), ...nodes);
}

/** figures shows named numbers; update takes [[value, note], ...] in the same order. */
export function figures(...names) {
  const cells = names.map((name) => {
    const [value, note] = [el('dd'), el('dd')];
    return { element: el('div', null, el('dt', null, name), value, note), value, note };
  });
  return {
    element: el('dl', { class: `sheet figures ${names.length % 4 ? 'thirds' : 'fourths'}` }, ...cells.map((c) => c.element)),
    update(values) {
      for (const [i, [value, note]] of values.entries()) {
        write(cells[i].value, value);
        write(cells[i].note, note ?? '');
      }
    },
  };
}

/** facts shows names and texts; it omits names without a text. */
export function facts(...names) {
  const lines = names.map((name) => ({ dt: el('dt', null, name), dd: el('dd') }));
  return {
    element: el('dl', { class: 'facts' }, ...lines.flatMap((l) => [l.dt, l.dd])),
    update(texts) {
      for (const [i, line] of lines.entries()) {
        set(line.dt, 'hidden', !texts[i]);
        set(line.dd, 'hidden', !texts[i]);
        write(line.dd, texts[i] || '');
      }
    },
  };
}

/** listOf keeps one element for each named thing: make() returns { element, update(thing) }. */
export function listOf(element, make, name) {
  const kept = new Map();
  return {
    element,
    update(things) {
      const names = new Set(things.map(name));
      for (const [n, item] of kept) {
        if (names.has(n)) continue;
        item.element.remove();
        kept.delete(n);
      }
      for (const thing of things) {
        let item = kept.get(name(thing));
        if (!item) {
          item = make(thing);
          kept.set(name(thing), item);
          element.append(item.element);
        }
        item.update(thing);
      }
    },
  };
}

/** checkList is the list of readiness checks. */
export function checkList() {
  return listOf(el('ul', { class: 'checks' }), () => {
    const mark = state();
    const why = el('span', { class: 'faint wide' });
    return {
      element: el('li', null, mark.element, why),
      update({ name, cluster, ok, reason }) {
        mark.update(ok ? 'good' : 'bad', `${cluster ? `${cluster}: ` : ''}${name}${ok ? '' : ' fails'}`);
        write(why, reason ?? '');
      },
    };
  }, ({ name, cluster }) => key(name, cluster));
}

/** choice is a group of radio buttons: options are [value, title]. */
export function choice(title, options, value, chosen) {
  const name = `choice-${title}`;
  return el('fieldset', null, el('legend', null, title),
    el('div', { class: 'choice' }, ...options.map(([v, text]) => el('label', null,
      el('input', { type: 'radio', name, value: v, checked: v === value, onchange: () => chosen(v) }), text))));
}
