import { el } from './dom.js';
import { count, percent, plural, rate, seconds, time } from './format.js';
import { Table, twoLines } from './table.js';
import { clusterColumn, figures, key, resource, section, when } from './words.js';

const reasons = 'docs/reasons.md tells what each means and what to do.';

function target(r) {
  if (r.path) return `${r.verb} ${r.path}`;
  return `${r.verb} ${resource(r)}${r.subresource ? `/${r.subresource}` : ''}${r.name ? ` ${r.name}` : ''}`;
}

const place = (r) => (r.path ? '' : r.namespace ? `in ${r.namespace}` : 'in all namespaces, or of none');

export const permissions = {
  title: 'Permissions',
  topic: 'permissions',
  lead: () => 'What was decided about who may do what, what was refused lately, and which watches ended for it.',
  open(app) {
    const numbers = figures('Decisions from memory', 'Asked anew', 'Decided while offline', 'Denied', 'Remembered', 'Rights have changed');
    const denials = new Table({
      caption: 'Recent denials', sort: 'Last', down: true, empty: 'Nobody has been denied anything lately.',
      id: (r) => key(r.cluster, r.user, r.verb, r.group, r.resource, r.subresource, r.namespace, r.name, r.path, r.userAgent),
      columns: [
        { title: 'What', head: true, cell: twoLines(target, place), find: (r) => `${target(r)} ${place(r)}`, by: target }, ...clusterColumn(app),
        { title: 'User', text: (r) => r.user, by: (r) => r.user, class: 'wide' },
        { title: 'User agent', text: (r) => r.userAgent || '(none)', by: (r) => r.userAgent, class: 'wide' },
        { title: 'Reason', text: (r) => r.reason || '–', class: 'wide' },
        { title: 'Times', number: true, text: (r) => count(r.count), by: (r) => r.count },
        when('Last', (r) => r.at),
      ],
    });
    const ended = new Table({
      caption: 'Watches that ended', sort: 'When', down: true, empty: 'No watch has ended for want of permission, or been ended, lately.',
      id: (r) => key(r.cluster, r.at, r.user, r.group, r.resource, r.namespace, r.seconds),
      columns: [
        { title: 'Watch', head: true, cell: twoLines(resource, place), by: resource }, ...clusterColumn(app),
        { title: 'User', text: (r) => r.user, by: (r) => r.user, class: 'wide' },
        { title: 'Reason', text: (r) => r.reason, by: (r) => r.reason },
        { title: 'Was open for', number: true, text: (r) => seconds(r.seconds), by: (r) => r.seconds },
        when('When', (r) => r.at),
      ],
    });
    const revocations = new Table({
      caption: 'Changes of rights', sort: 'When', down: true, empty: 'No rights have changed lately.', id: (r) => key(r.cluster, r.at, r.what),
      columns: [{ title: 'What', head: true, text: (r) => r.what, by: (r) => r.what }, ...clusterColumn(app), when('When', (r) => r.at)],
    });
    const refusals = new Table({
      caption: 'Refusals by reason', sort: 'Requests', down: true, empty: 'No request has been refused since the start.', id: (r) => key(r.cluster, r.reason),
      columns: [
        { title: 'Reason', head: true, text: (r) => r.reason, by: (r) => r.reason }, ...clusterColumn(app),
        { title: 'Requests', number: true, text: (r) => count(r.total), by: (r) => r.total },
        { title: 'Now', number: true, text: (r) => rate(r.rate), by: (r) => r.rate },
      ],
    });
    return {
      nodes: [section('Decisions', numbers.element),
        section('Recent denials', el('div', { class: 'tools' }, denials.filter('Find a denial')), denials.element),
        section('Watches that ended', ended.element),
        section('Changes of rights', revocations.element),
        section('Refusals', el('p', { class: 'lead' }, `Requests that kubeweir refused by itself, by reason: ${reasons}`), refusals.element)],
      update(d) {
        const { decisions: n, invalidations } = d;
        const asked = n.cached + n.upstream + n.offline;
        numbers.update([
          [asked ? percent(n.cached / asked) : '–', plural(n.cached, 'decision')],
          [count(n.upstream), plural(n.errors, 'error')], [count(n.offline), 'no API server answered'],
          [count(n.denied), `${count(n.allowed)} allowed`], [count(n.entries), n.limit ? `of ${count(n.limit)} at most` : ''],
          [plural(invalidations.total, 'time'), invalidations.last ? `last ${time(invalidations.last)}` : 'since the start'],
        ]);
        denials.update(d.denials);
        ended.update(d.endedWatches);
        revocations.update(d.revocations);
        refusals.update(d.refusals);
      },
    };
  },
};
