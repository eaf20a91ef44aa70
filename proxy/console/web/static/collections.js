import { el, write } from './dom.js';
import { spark, state } from './draw.js';
import { bytes, count, plural, rate, seconds, time } from './format.js';
import { Table, twoLines } from './table.js';
import { clusterColumn, key, resource, version } from './words.js';

const kinds = { synced: 'good', starting: 'idle', stale: 'warn', stopped: 'bad' };
const idOf = (r) => key(r.cluster, r.group, r.version, r.resource, r.encoding);

// Events bring no series, which are long: the document has them, and the newest point is added here.
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
    const line = spark('Events a second', rate);
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
      write(why, row.error ?? (missing(row.age) ? '' : `${seconds(row.age)} ago`));
    },
  };
}

export const collections = {
  title: 'Collections',
  topic: 'collections',
  lead: () => 'What the cache holds: one collection for each resource and encoding that somebody has read.',
  open(app) {
    const series = new Series();
    const table = new Table({
      caption: 'Collections of the cache', id: idOf, sort: 'Objects', down: true,
      empty: 'No collection yet. The first list or watch of a resource starts one: try “kubectl get pods --watch” through kubeweir.',
      columns: [
        { title: 'Resource', head: true, cell: twoLines((r) => r.resource, version), find: (r) => `${resource(r)} ${r.encoding}`, by: resource },
        ...clusterColumn(app),
        { title: 'State', class: 'told', cell: stateCell, find: (r) => `${r.state} ${r.error ?? ''}`, by: (r) => r.state },
        { title: 'Objects', number: true, text: (r) => count(r.objects), by: (r) => r.objects },
        { title: 'Size', number: true, text: (r) => bytes(r.bytes), by: (r) => r.bytes },
        { title: 'Watchers', number: true, by: (r) => r.watchers, cell: twoLines((r) => count(r.watchers), (r) => (r.lagging ? `${count(r.lagging)} behind` : '')) },
        { title: 'Events', cell: eventCell(series), by: (r) => r.eventsIn.rate, most: true },
        { title: 'Version', number: true, text: (r) => r.resourceVersion || '–', by: (r) => Number(r.resourceVersion) || 0 },
        { title: 'History', number: true, by: (r) => r.history.seconds,
          cell: twoLines((r) => seconds(r.history.seconds), (r) => plural(r.history.events, 'event')) },
        { title: 'Compared', number: true, text: (r) => (r.checked ? time(r.checked).slice(11) : '–'), by: (r) => r.checked ?? '' },
      ],
    });
    app.get('collections').then((d) => {
      series.load(d.collections);
      table.update(d.collections);
    }, () => {}); // the live stream tells what is wrong
    return {
      nodes: [el('div', { class: 'tools' }, table.filter('Find a collection')), table.element,
        el('p', { class: 'lead small' }, 'State, and the last sign of life of what feeds it. History: how far back watches may begin. Compared: when the self-check last found it equal to its source.')],
      update(d) {
        series.add(d.collections);
        table.update(d.collections);
      },
    };
  },
};
