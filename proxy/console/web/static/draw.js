// Drawings: states, charts, shares and meters, each with a text alternative.

import { el, set, svg, write } from './dom.js';

const shapes = {
  good: 'M5.5 0a5.5 5.5 0 1 1 0 11a5.5 5.5 0 0 1 0-11Z',
  warn: 'M5.5 0.5 11 10.5H0Z',
  bad: 'M1 0h9a1 1 0 0 1 1 1v9a1 1 0 0 1-1 1H1a1 1 0 0 1-1-1V1a1 1 0 0 1 1-1Z',
  idle: 'M5.5 0.5a5 5 0 1 1 0 10a5 5 0 0 1 0-10Zm0 2a3 3 0 1 0 0 6a3 3 0 0 0 0-6Z',
};

const colors = { good: 'good', warn: 'warn', bad: 'bad-text', idle: 'faint' };

/** state is a shape and a word; update takes the kind (good, warn, bad or idle) and the word. */
export function state() {
  const path = svg('path');
  const word = el('span');
  const element = el('span', { class: 'state' }, svg('svg', { viewBox: '0 0 11 11', 'aria-hidden': 'true' }, path), word);
  return {
    element,
    update(kind, text) {
      set(element, 'class', `state ${colors[kind]}`);
      set(path, 'd', shapes[kind]);
      write(word, text);
    },
  };
}

// pieces splits a line at its nulls, in a drawing of width times height.
function pieces(values, width, height, top) {
  const step = width / Math.max(values.length - 1, 1);
  const found = [];
  let piece = null;
  for (const [i, value] of values.entries()) {
    if (value === null || value === undefined) piece = null;
    else {
      if (!piece) found.push(piece = []);
      piece.push([(i * step).toFixed(1), (height - (value / top) * height).toFixed(1)]);
    }
  }
  return found;
}

const drawn = (piece) => `M${piece.map((point) => point.join(' ')).join('L')}`;

function lineOf(values, width, height, top) {
  return pieces(values, width, height, top).map((p) => (p.length === 1 ? `${drawn(p)}h.1` : drawn(p))).join('');
}

const numbers = (values) => values.filter((value) => value !== null && value !== undefined);

/** spark is a small line chart; what is its name, format formats its values. */
export function spark(what, format) {
  const line = svg('path', { class: 'line' });
  const element = svg('svg', { class: 'spark', viewBox: '0 0 96 22', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${what}: no data` },
    svg('path', { class: 'floor', d: 'M0 21.5H96' }), line);
  return {
    element,
    update(values) {
      const known = numbers(values);
      const top = Math.max(...known, 0);
      set(element, 'aria-label', known.length ? `${what}: now ${format(values.at(-1))}, highest ${format(top)}` : `${what}: no data`);
      set(line, 'd', lineOf(values, 96, 21, top || 1) || 'M0 21.5');
    },
  };
}

/** chart is a line chart with its newest and highest value. top, if given, is the end of the scale. */
export function chart(what, format, top) {
  const area = svg('path', { class: 'area' });
  const line = svg('path', { class: 'line' });
  const drawing = svg('svg', { viewBox: '0 0 300 72', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${what}: no data` },
    svg('path', { class: 'floor', d: 'M0 71.5H300' }), area, line);
  const now = el('b');
  const highest = el('span');
  const since = el('span');
  return {
    element: el('figure', { class: 'sheet chart' },
      el('figcaption', null, what, now), drawing,
      el('div', { class: 'axis' }, since, highest)),
    update(values, step) {
      const known = numbers(values);
      const most = Math.max(...known, 0);
      const scale = top ?? (most || 1);
      const parts = pieces(values, 300, 71, scale);
      set(line, 'd', lineOf(values, 300, 71, scale) || 'M0 71.5');
      set(area, 'd', parts.map((p) => `${drawn(p)}L${p.at(-1)[0]} 71.5L${p[0][0]} 71.5Z`).join('') || 'M0 71.5');
      const text = known.length ? format(values.at(-1)) : 'no data';
      const minutes = Math.round(((values.length - 1) * step) / 60);
      const span = minutes > 0 ? `last ${minutes} min` : 'just started';
      write(now, text);
      write(highest, known.length ? `highest ${format(most)}` : '');
      write(since, span);
      set(drawing, 'aria-label', `${what}, ${span}: now ${text}, highest ${format(most)}`);
    },
  };
}

/** share is a bar of parts [{ name, title }], with a legend; update takes { name: [n, text, detail] }. */
export function share(what, parts, format) {
  const bar = svg('svg', { class: 'share', viewBox: '0 0 1000 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${what}: no data` });
  const lines = parts.map(({ name, title }) => {
    const rect = svg('rect', { class: name, y: 0, height: 10 });
    bar.append(rect);
    const [value, detail] = [el('b'), el('span', { class: 'small' })];
    const item = el('li', null,
      svg('svg', { viewBox: '0 0 12 12', 'aria-hidden': 'true' }, svg('rect', { class: name, y: 1, width: 10, height: 10, rx: 2 })),
      el('span', null, title), value, detail);
    return { name, title, rect, value, detail, item };
  });
  return {
    element: el('div', null, bar, el('ul', { class: 'legend' }, ...lines.map((l) => l.item))),
    update(values) {
      const sum = lines.reduce((n, l) => n + values[l.name].n, 0);
      let x = 0;
      for (const l of lines) {
        const part = sum ? values[l.name].n / sum : 0;
        set(l.rect, 'x', (x * 1000).toFixed(1));
        // A gap separates neighbors where their colors do not.
        set(l.rect, 'width', Math.max(0, part * 1000 - (part < 1 ? 2 : 0)).toFixed(1));
        x += part;
        write(l.value, format(sum ? part : null));
        write(l.detail, values[l.name].detail);
      }
      set(bar, 'aria-label', sum ? `${what}: ${lines.map((l) => `${l.title} ${format(values[l.name].n / sum)}`).join(', ')}` : `${what}: no data`);
    },
  };
}

/** bar shows a share from 0 to 1. It decorates the number beside it. */
export function bar(name = 'bar') {
  const fill = svg('rect', { class: 'fill', height: 6 });
  return {
    element: svg('svg', { class: name, viewBox: '0 0 100 6', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      svg('rect', { class: 'track', width: 100, height: 6 }), fill),
    update(part, warn = false) {
      const within = Math.min(Math.max(part || 0, 0), 1);
      set(fill, 'width', (within * 100).toFixed(1));
      set(fill, 'class', `fill ${warn && within >= 0.95 ? 'bad-text' : warn && within >= 0.8 ? 'warn' : ''}`.trim());
    },
  };
}
