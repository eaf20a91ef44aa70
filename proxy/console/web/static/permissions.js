import { el } from './dom.js';
import { count, percent, plural, rate, seconds, time } from './format.js';
import { Table, twoLines } from './table.js';
import { clusterColumn, figures, key, resource, section, when } from './text.js';

const reasons = 'docs/reasons.md explains each and what to do.';

function target(r) {
  if (r.path) return `${r.verb} ${r.path}`;
  return `${r.verb} ${resource(r)}${r.subresource ? `/${r.subresource}` : ''}${r.name ? ` ${r.name}` : ''}`;
}

const scope = (r) => (r.path ? '' : r.namespace ? `in ${r.namespace}` : 'in all namespaces, or cluster-scoped');

export const permissions = {
  title: 'Permissions',
  topic: 'permissions',
  lead: () => 'Authorization decisions, recent denials, and watches that ended early.',
  open(app) {
    const numbers = figures('Cached decisions', 'Decided by the cluster', 'Decided offline', 'Denied', 'Cache entries', 'RBAC changes');
    const denials = new Table({
      caption: 'Recent denials', sort: 'Last', down: true, empty: 'No recent denials.',
      id: (r) => key(r.cluster, r.user, r.verb, r.group, r.resource, r.subresource, r.namespace, r.name, r.path, r.userAgent),
      columns: [
        { title: 'Request', head: true, cell: twoLines(target, scope), find: (r) => `${target(r)} ${scope(r)}`, by: target }, ...clusterColumn(app),
        { title: 'User', text: (r) => r.user, by: (r) => r.user, class: 'wide' },
        { title: 'User agent', text: (r) => r.userAgent || '(none)', by: (r) => r.userAgent, class: 'wide' },
        { title: 'Reason', text: (r) => r.reason || '–', class: 'wide' },
        { title: 'Count', number: true, text: (r) => count(r.count), by: (r) => r.count },
        when('Last', (r) => r.at),
      ],
    });
    const ended = new Table({
      caption: 'Ended watches', sort: 'When', down: true, empty: 'No watch has been ended recently.',
      id: (r) => key(r.cluster, r.at, r.user, r.group, r.resource, r.namespace, r.seconds),
      columns: [
        { title: 'Watch', head: true, cell: twoLines(resource, scope), by: resource }, ...clusterColumn(app),
        { title: 'User', text: (r) => r.user, by: (r) => r.user, class: 'wide' },
        { title: 'Reason', text: (r) => r.reason, by: (r) => r.reason },
        { title: 'Duration', number: true, text: (r) => seconds(r.seconds), by: (r) => r.seconds },
        when('When', (r) => r.at),
      ],
    });
    const rejections = new Table({
      caption: 'Rejections by reason', sort: 'Requests', down: true, empty: 'No request has been rejected since the start.', id: (r) => key(r.cluster, r.reason),
      columns: [
        { title: 'Reason', head: true, text: (r) => r.reason, by: (r) => r.reason }, ...clusterColumn(app),
        { title: 'Requests', number: true, text: (r) => count(r.total), by: (r) => r.total },
        { title: 'Rate', number: true, text: (r) => rate(r.rate), by: (r) => r.rate },
      ],
    });
    return {
      nodes: [section('Decisions', numbers.element),
        section('Recent denials', el('div', { class: 'tools' }, denials.filter('Find a denial')), denials.element),
        section('Ended watches', ended.element),
        section('Rejections', el('p', { class: 'lead' }, `Requests that kubeweir rejected, by reason: ${reasons}`), rejections.element)],
      update(d) {
        const { decisions: n, invalidations } = d;
        const asked = n.cached + n.upstream + n.offline;
        numbers.update([
          [asked ? percent(n.cached / asked) : '–', plural(n.cached, 'decision')],
          [count(n.upstream), plural(n.errors, 'error')], [count(n.offline), 'upstream unreachable'],
          [count(n.denied), `${count(n.allowed)} allowed`], [count(n.entries), n.limit ? `limit ${count(n.limit)}` : ''],
          [count(invalidations.total), invalidations.last ? `last ${time(invalidations.last)}` : 'since the start'],
        ]);
        denials.update(d.denials);
        ended.update(d.endedWatches);
        rejections.update(d.rejections);
      },
    };
  },
};
