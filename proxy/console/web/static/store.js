import { el, set, write } from './dom.js';
import { chart, state } from './draw.js';
import { bytes, count, rate, seconds } from './format.js';
import { Table } from './table.js';
import { figures, key, resource, section } from './words.js';

export const store = {
  title: 'Store',
  topic: 'store',
  lead: () => 'Where the objects are kept: how large it is, and how fast it is written.',
  open() {
    const size = figures('On disk', 'Keys', 'Revision', 'Compacted up to', 'Index in memory', 'Events kept');
    const writes = figures('Writes', 'A commit takes', 'Writes in a commit', 'Waiting', 'Watches', 'Watches that fell behind');
    const written = chart('Writes', rate);
    const note = el('p', { class: 'lead' });
    const mark = state();
    const own = el('div', null, section('Size', size.element), section('Writes', writes.element),
      section('The last minutes', el('div', { class: 'charts' }, written.element)));
    const table = new Table({
      caption: 'Types', id: (r) => key(r.group, r.resource), sort: 'Objects', down: true, empty: 'The store has no objects, or has not counted them yet.',
      columns: [
        { title: 'Resource', head: true, text: resource, by: resource },
        { title: 'Objects', number: true, text: (r) => count(r.objects), by: (r) => r.objects },
        { title: 'Bytes', number: true, text: (r) => bytes(r.bytes), by: (r) => r.bytes ?? -1 },
      ],
    });
    return {
      nodes: [el('section', { class: 'sheet pad' }, el('p', { class: 'answer' }, mark.element)), own,
        section('Types', note, el('div', { class: 'tools' }, table.filter('Find a type')), table.element)],
      update(d) {
        mark.update(d.available ? 'good' : 'bad', `${d.engine === 'etcd' ? 'etcd' : 'The store in --data-dir'} ${d.available ? 'answers' : 'does not answer: the log says why'}`);
        set(own, 'hidden', d.engine === 'etcd'); // whose own metrics tell
        size.update([
          [bytes(d.diskBytes), d.diskFree === null || d.diskFree === undefined ? '' : `${bytes(d.diskFree)} free`],
          [count(d.keys), ''], [count(d.revision), ''], [count(d.compacted), `${count(d.compactions)} compactions`],
          [bytes(d.indexBytes), ''], [bytes(d.ringBytes), 'for watches that begin in the past'],
        ]);
        writes.update([
          [rate(d.writes.rate), `${count(d.writes.total)} in all`], [seconds(d.commit.seconds), 'on average'],
          [d.commit.changes === null ? '–' : d.commit.changes.toFixed(1), 'on average'], [count(d.queued), ''], [count(d.watchers), ''], [count(d.expired), ''],
        ]);
        written.update(d.series.writeRate ?? [], d.series.step);
        write(note, d.typesNote ?? '');
        set(note, 'hidden', !d.typesNote);
        table.update(d.types);
      },
    };
  },
};
