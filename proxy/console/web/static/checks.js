import { el, set, write } from './dom.js';
import { state } from './draw.js';
import { count, plural, seconds, time } from './format.js';
import { Table, twoLines } from './table.js';
import { clusterColumn, key, resource, version } from './words.js';

const results = { same: ['good', 'equal'], differs: ['bad', 'differs'], unfinished: ['warn', 'not finished'], none: ['idle', 'not compared yet'] };

function resultCell() {
  const mark = state();
  const why = el('span', { class: 'under' });
  return {
    element: el('div', null, mark.element, why),
    update(row) {
      mark.update(...(results[row.result] ?? ['idle', row.result]));
      write(why, row.error ?? (row.differing ? `${plural(row.differing, 'object')}; the collection was listed anew` : ''));
    },
  };
}

export const checks = {
  title: 'Self-check',
  topic: 'checks',
  lead: () => 'Each collection is compared with the cluster at one version; what differs is listed anew, and is a bug to report.',
  open(app) {
    const about = el('p', { class: 'faint push' });
    const button = app.session.actions && el('button', {
      type: 'button',
      onclick: () => app.act('check', { cluster: app.cluster || undefined, resources: [] }, {
        title: 'Compare all collections now?', text: 'Names and versions of all objects are listed at the cluster, and some objects are read.', button: 'Compare now',
      }),
    }, 'Compare now');
    const table = new Table({
      caption: 'Results of the self-check', id: (r) => key(r.cluster, r.group, r.version, r.resource, r.encoding), sort: 'Resource',
      empty: 'There is no collection to compare yet.',
      columns: [
        { title: 'Resource', head: true, cell: twoLines((r) => r.resource, version), find: resource, by: resource }, ...clusterColumn(app),
        { title: 'Result', cell: resultCell, find: (r) => results[r.result]?.[1] ?? r.result, by: (r) => r.result },
        { title: 'Compared', text: (r) => time(r.checked), by: (r) => r.checked ?? '' },
        { title: 'Took', number: true, text: (r) => seconds(r.seconds), by: (r) => r.seconds },
        { title: 'Objects', number: true, text: (r) => count(r.objects), by: (r) => r.objects },
        { title: 'Read in full', number: true, text: (r) => count(r.sampled), by: (r) => r.sampled },
        { title: 'Equal', number: true, text: (r) => count(r.totals.same), by: (r) => r.totals.same },
        { title: 'Differed', number: true, text: (r) => count(r.totals.differs), by: (r) => r.totals.differs },
        { title: 'Not finished', number: true, text: (r) => count(r.totals.unfinished), by: (r) => r.totals.unfinished },
      ],
    });
    return {
      nodes: [el('div', { class: 'tools' }, table.filter('Find a collection'), button, about), table.element],
      update(d) {
        write(about, d.running ? 'A comparison is under way.' : d.period ? `Every ${seconds(d.period)}.` : 'Not by itself: selfCheck.period is 0.');
        if (button) set(button, 'disabled', d.running);
        table.update(d.collections);
      },
    };
  },
};
