import { el, write } from './dom.js';
import { spark, state } from './draw.js';
import { bytes, count, plural, rate, seconds, time } from './format.js';
import { Table, twoLines } from './table.js';
import { clusterColumn, key, resource, version } from './text.js';

const kinds = { synced: 'good', starting: 'idle', stale: 'warn', stopped: 'bad' };
const idOf = (r) => key(r.cluster, r.group, r.version, r.resource, r.encoding);

// Series adds the newest point to the series of the document. Stream events carry no series, because they are long.
class Series {
  #of = new Map();
  #step = 10;
  #added = 0;

  load(rows) {
    this.#added = Date.now();
    for (const row of rows) {
      if (!row.series) continue;
      this.#step = row.series.step;
      this.#of.set(idOf(row), [...row.series.eventRate ?? []]);
    }
  }

  add(rows) {
    const more = Date.now() - this.#added >= this.#step * 1000;
    if (more) this.#added = Date.now();
    for (const row of rows) {
      const values = this.#of.get(idOf(row)) ?? [null];
      if (more) values.push(null);
      values[values.length - 1] = row.eventsIn.rate;
      if (values.length > 90) values.shift();
      this.#of.set(idOf(row), values);
    }
  }

  get = (row) => this.#of.get(idOf(row)) ?? [];
}

function eventCell(series) {
  return () => {
    const line = spark('Events per second', rate);
    const now = el('span', { class: 'under' });
    return {
      element: el('div', null, line.element, now),
      update(row) {
        line.update(series.get(row));
        write(now, rate(row.eventsIn.rate));
      },
    };
  };
}

function stateCell() {
  const mark = state();
  const why = el('span', { class: 'under' });
  const missing = (n) => n === null || n === undefined;
  return {
    element: el('div', null, mark.element, why),
    update(row) {
      mark.update(kinds[row.state] ?? 'idle', row.state);
      write(why, row.error ?? (missing(row.age) ? '' : `lag ${seconds(row.age)}`));
    },
  };
}

export const collections = {
  title: 'Collections',
  topic: 'collections',
  lead: () => 'The cache has one collection for each resource and encoding that clients read.',
  open(app) {
    const series = new Series();
    const table = new Table({
      caption: 'Cached collections', id: idOf, sort: 'Objects', down: true,
      empty: 'No collections yet. The first list or watch of a resource creates one: try “kubectl get pods --watch” through kubeweir.',
      columns: [
        { title: 'Resource', head: true, cell: twoLines((r) => r.resource, version), find: (r) => `${resource(r)} ${r.encoding}`, by: resource },
        ...clusterColumn(app),
        { title: 'State', class: 'told', cell: stateCell, find: (r) => `${r.state} ${r.error ?? ''}`, by: (r) => r.state },
        { title: 'Objects', number: true, text: (r) => count(r.objects), by: (r) => r.objects },
        { title: 'Size', number: true, text: (r) => bytes(r.bytes), by: (r) => r.bytes },
        { title: 'Watchers', number: true, by: (r) => r.watchers, cell: twoLines((r) => count(r.watchers), (r) => (r.lagging ? `${count(r.lagging)} lagging` : '')) },
        { title: 'Events', cell: eventCell(series), by: (r) => r.eventsIn.rate, most: true },
        { title: 'Resource version', number: true, text: (r) => r.resourceVersion || '–', by: (r) => Number(r.resourceVersion) || 0 },
        { title: 'History', number: true, by: (r) => r.history.seconds,
          cell: twoLines((r) => seconds(r.history.seconds), (r) => plural(r.history.events, 'event')) },
        { title: 'Last check', number: true, text: (r) => (r.checked ? time(r.checked).slice(11) : '–'), by: (r) => r.checked ?? '' },
      ],
    });
    app.get('collections').then((d) => {
      series.load(d.collections);
      table.update(d.collections);
    }, () => {}); // the live stream reports the error
    return {
      nodes: [el('div', { class: 'tools' }, table.filter('Find a collection')), table.element,
        el('p', { class: 'lead small' }, 'State: the second line is the feed lag. History: how far back watches can resume. Last check: when the collection was last listed, or found equal to the cluster.')],
      update(d) {
        series.add(d.collections);
        table.update(d.collections);
      },
    };
  },
};
