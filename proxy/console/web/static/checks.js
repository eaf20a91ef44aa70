import { el, set, write } from './dom.js';
import { state } from './draw.js';
import { count, plural, seconds, time } from './format.js';
import { Table, twoLines } from './table.js';
import { clusterColumn, key, resource, version } from './text.js';

const results = { same: ['good', 'equal'], differs: ['bad', 'differs'], unfinished: ['warn', 'incomplete'], none: ['idle', 'not checked yet'] };

function resultCell() {
  const mark = state();
  const why = el('span', { class: 'under' });
  return {
    element: el('div', null, mark.element, why),
    update(row) {
      mark.update(...(results[row.result] ?? ['idle', row.result]));
      write(why, row.error ?? (row.differing ? `${plural(row.differing, 'object')}; the collection was relisted` : ''));
    },
  };
}

export const checks = {
  title: 'Self-check',
  topic: 'checks',
  lead: () => 'The self-check compares each collection with the cluster at one version. A collection that differs is relisted; please report it as a bug.',
  open(app) {
    const about = el('p', { class: 'faint push' });
    const button = app.session.actions && el('button', {
      type: 'button',
      onclick: () => app.act('check', { cluster: app.cluster || undefined, resources: [] }, {
        title: 'Check all collections now?', text: 'The check lists the names and versions of all objects in the cluster, and reads some objects.', button: 'Check now',
      }),
    }, 'Check now');
    const table = new Table({
      caption: 'Self-check results', id: (r) => key(r.cluster, r.group, r.version, r.resource, r.encoding), sort: 'Resource',
      empty: 'There are no collections to check yet.',
      columns: [
        { title: 'Resource', head: true, cell: twoLines((r) => r.resource, version), find: resource, by: resource }, ...clusterColumn(app),
        { title: 'Result', cell: resultCell, find: (r) => results[r.result]?.[1] ?? r.result, by: (r) => r.result },
        { title: 'Last check', text: (r) => time(r.checked), by: (r) => r.checked ?? '' },
        { title: 'Duration', number: true, text: (r) => seconds(r.seconds), by: (r) => r.seconds },
        { title: 'Objects', number: true, text: (r) => count(r.objects), by: (r) => r.objects },
        { title: 'Sampled', number: true, text: (r) => count(r.sampled), by: (r) => r.sampled },
        { title: 'Equal', number: true, text: (r) => count(r.totals.same), by: (r) => r.totals.same },
        { title: 'Different', number: true, text: (r) => count(r.totals.differs), by: (r) => r.totals.differs },
        { title: 'Incomplete', number: true, text: (r) => count(r.totals.unfinished), by: (r) => r.totals.unfinished },
      ],
    });
    return {
      nodes: [el('div', { class: 'tools' }, table.filter('Find a collection'), button, about), table.element],
      update(d) {
        write(about, d.running ? 'A check is running.' : d.period ? `Every ${seconds(d.period)}.` : 'Periodic checks are off: selfCheck.period is 0.');
        if (button) set(button, 'disabled', d.running);
        table.update(d.collections);
      },
    };
  },
};
