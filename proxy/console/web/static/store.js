import { el, set } from './dom.js';
import { chart, state } from './draw.js';
import { bytes, count, rate, seconds } from './format.js';
import { Table } from './table.js';
import { figures, key, resource, section } from './text.js';

export const store = {
  title: 'Store',
  topic: 'store',
  lead: () => 'Size and write rate of the object store.',
  open() {
    const size = figures('On disk', 'Keys', 'Revision', 'Compacted revision', 'Index in memory');
    const writes = figures('Writes', 'Commit latency', 'Writes per commit', 'Queued writes', 'Watches', 'Expired watches');
    const written = chart('Writes', rate);
    const mark = state();
    const table = new Table({
      caption: 'Types', id: (r) => key(r.group, r.resource), sort: 'Objects', down: true, empty: 'The store has no objects, or has not counted them yet.',
      columns: [
        { title: 'Resource', head: true, text: resource, by: resource },
        { title: 'Objects', number: true, text: (r) => count(r.objects), by: (r) => r.objects },
      ],
    });
    const own = el('div', null, section('Size', size.element), section('Writes', writes.element),
      section('Last 15 minutes', el('div', { class: 'charts' }, written.element)),
      section('Types', el('div', { class: 'tools' }, table.filter('Find a type')), table.element));
    return {
      nodes: [el('section', { class: 'sheet pad' }, el('p', { class: 'answer' }, mark.element)), own],
      update(d) {
        mark.update(d.available ? 'good' : 'bad', `${d.engine === 'etcd' ? 'etcd' : 'The store in --data-dir'} ${d.available ? 'is available' : 'is unavailable: see the log'}`);
        set(own, 'hidden', d.engine === 'etcd'); // etcd has metrics of its own
        size.update([
          [bytes(d.diskBytes), d.diskFree === null || d.diskFree === undefined ? '' : `${bytes(d.diskFree)} free`],
          [count(d.keys), ''], [count(d.revision), ''], [count(d.compacted), `${count(d.compactions)} compactions`],
          [bytes(d.indexBytes), ''],
        ]);
        writes.update([
          [rate(d.writes.rate), `${count(d.writes.total)} in all`], [seconds(d.commit.seconds), 'mean'],
          [d.commit.changes === null ? '–' : d.commit.changes.toFixed(1), 'mean'], [count(d.queued), ''], [count(d.watchers), ''], [count(d.expired), ''],
        ]);
        written.update(d.series.writeRate ?? [], d.series.step);
        table.update(d.types);
      },
    };
  },
};
