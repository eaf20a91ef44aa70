// A table with sortable columns and a filter, updated in place: a row keeps its element, so that
// the focus, the selection and the position of a screen reader survive updates.

import { arrange, el, newID, set, svg, write } from './dom.js';
import { count } from './format.js';

// The number of rows shown at first, and added with each press of the button.
const step = 100;

/**
 * A column has a title and cells: text(row), or cell() that makes { element, update(row) }. by(row) is the sort key; a
 * column without it cannot be sorted. The column with head is the header of its row. onsort receives the column and
 * whether the order is descending.
 */
export class Table {
  #columns;
  #id;
  #lines = new Map();
  #rows = [];
  #needle = '';
  #sorted;
  #down;
  #limit = step;
  #onsort;
  #body = el('tbody', { role: 'rowgroup' });
  #empty;
  #emptyText;
  #more;
  #moreText = el('span', { class: 'faint small' });
  #scroll;

  constructor({ caption, columns, id, empty, sort, down = false, onsort }) {
    this.#onsort = onsort;
    this.#columns = columns;
    this.#id = id;
    this.#emptyText = empty;
    this.#sorted = columns.find((c) => c.title === sort);
    this.#down = down;
    const captionID = newID('caption');
    const table = el('table', { role: 'table', 'aria-labelledby': captionID },
      el('caption', { class: 'unseen', id: captionID }, caption),
      el('thead', { role: 'rowgroup', class: columns.some((c) => c.by) ? null : 'still' },
        el('tr', { role: 'row' }, ...columns.map((c) => this.#head(c)))),
      this.#body);
    this.#empty = el('p', { class: 'empty' });
    this.#more = el('div', { class: 'more', hidden: true },
      el('button', { type: 'button', onclick: () => { this.#limit += step; this.#draw(true); } }, `Show ${step} more`),
      this.#moreText);
    this.#scroll = el('div', { class: 'table' }, table);
    this.element = el('div', { class: 'sheet rows', tabindex: '-1' }, this.#scroll, this.#empty, this.#more);
    this.#show(0, 0);
  }

  /** filter makes a search box that shows only the rows with its text in a cell. */
  filter(label) {
    const id = newID('filter');
    return el('div', { class: 'field' },
      el('label', { for: id }, label),
      el('input', {
        id, type: 'search', autocomplete: 'off', spellcheck: 'false',
        oninput: (e) => { this.#needle = e.target.value.trim().toLowerCase(); this.#limit = step; this.#draw(true); },
      }));
  }

  update(rows) {
    this.#rows = rows;
    this.#draw(!this.#held());
  }

  // Rows keep their places while one of them has the focus or the pointer.
  #held() {
    return this.#body.contains(document.activeElement) || this.#body.matches(':hover');
  }

  #head(column) {
    const cell = el('th', { scope: 'col', role: 'columnheader', class: column.number ? 'number' : null });
    if (!column.by) {
      cell.append(el('span', { class: column.unseen ? 'unseen' : 'plain' }, column.title));
      return cell;
    }
    cell.append(el('button', { type: 'button', onclick: () => this.#sortBy(column) }, column.title,
      svg('svg', { viewBox: '0 0 8 12', 'aria-hidden': 'true', class: 'up' }, svg('path', { d: 'M4 2 8 7H0Z' })),
      svg('svg', { viewBox: '0 0 8 12', 'aria-hidden': 'true', class: 'down' }, svg('path', { d: 'M4 10 0 5h8Z' }))));
    column.header = cell;
    this.#mark(column);
    return cell;
  }

  #mark(column) {
    let order = 'none';
    if (column === this.#sorted) order = this.#down ? 'descending' : 'ascending';
    set(column.header, 'aria-sort', order);
  }

  // The first press sorts numbers and times in descending order, names in ascending order.
  #sortBy(column) {
    this.#down = column === this.#sorted ? !this.#down : Boolean(column.number || column.most);
    this.#sorted = column;
    for (const c of this.#columns) if (c.header) this.#mark(c);
    this.#draw(true);
    this.#onsort?.(column, this.#down);
  }

  #draw(anew) {
    const chosen = this.#needle ? this.#rows.filter((row) => this.#texts(row).includes(this.#needle)) : this.#rows;
    const ordered = anew ? this.#order(chosen) : this.#keepOrder(chosen);
    const shown = ordered.slice(0, this.#limit);
    const lines = shown.map((row) => {
      const id = this.#id(row);
      const line = this.#lines.get(id) ?? this.#line(row);
      this.#lines.set(id, line);
      for (const update of line.updates) update(row);
      return [id, line];
    });
    const ids = new Set(lines.map(([id]) => id));
    for (const [id, line] of this.#lines) {
      if (ids.has(id)) continue;
      // If the row that is gone has the focus, move it to the table, not to the top of the page.
      if (line.element.contains(document.activeElement)) this.element.focus();
      this.#lines.delete(id);
    }
    arrange(this.#body, lines.map(([, line]) => line.element));
    this.#show(shown.length, chosen.length);
  }

  #show(shown, chosen) {
    set(this.#scroll, 'hidden', shown === 0);
    set(this.#empty, 'hidden', shown !== 0);
    write(this.#empty, this.#rows.length && this.#needle ? `No rows match “${this.#needle}”.` : this.#emptyText);
    set(this.#more, 'hidden', shown === chosen);
    write(this.#moreText, `${count(shown)} of ${count(chosen)} shown`);
  }

  #texts(row) {
    return this.#columns.map((c) => c.find?.(row) ?? c.text?.(row) ?? '').join('\n').toLowerCase();
  }

  #order(rows) {
    const { by } = this.#sorted ?? {};
    if (!by) return rows;
    const sign = this.#down ? -1 : 1;
    const keys = new Map(rows.map((row) => [row, by(row) ?? null]));
    return [...rows].sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      if (x !== y) return (typeof x === 'string' ? x.localeCompare(y, 'en', { numeric: true }) : x - y) * sign;
      return this.#id(a) < this.#id(b) ? -1 : 1;
    });
  }

  #keepOrder(rows) {
    const place = new Map([...this.#body.children].map((line, i) => [line.dataset.id, i]));
    const at = (row) => place.get(this.#id(row)) ?? Infinity;
    return [...rows].sort((a, b) => (at(a) === at(b) ? 0 : at(a) - at(b)));
  }

  #line(row) {
    const updates = [];
    const cells = this.#columns.map((column) => {
      const cell = el(column.head ? 'th' : 'td', {
        role: column.head ? 'rowheader' : 'cell', scope: column.head ? 'row' : null,
        'data-title': column.head ? null : column.title,
        class: [column.number && 'number', column.head && 'name', column.unseen && 'bare', column.class].filter(Boolean).join(' ') || null,
      });
      if (column.cell) {
        const inner = column.cell();
        cell.append(inner.element);
        updates.push((r) => inner.update(r));
      } else updates.push((r) => write(cell, column.text(r)));
      return cell;
    });
    return { element: el('tr', { role: 'row', 'data-id': this.#id(row) }, ...cells), updates };
  }
}

/** twoLines makes a cell with a smaller second line, hidden if it is empty. */
export function twoLines(first, second) {
  return () => {
    const above = el('span', { class: 'wide' });
    const below = el('span', { class: 'under' });
    const element = el('div', null, above, below);
    return {
      element,
      update(row) {
        write(above, first(row));
        const text = second(row) ?? '';
        write(below, text);
        set(below, 'hidden', !text);
      },
    };
  };
}
