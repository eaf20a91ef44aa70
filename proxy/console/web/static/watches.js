import { el, newID, set, write } from './dom.js';
import { count, plural, seconds } from './format.js';
import { Table, twoLines } from './table.js';
import { clusterColumn, key, resource } from './text.js';

const where = (r) => (r.namespace ? `in ${r.namespace}` : 'in all namespaces');
const selected = (r) => [where(r), r.selector, r.fieldSelector].filter(Boolean).join(', ');

// The gateway sends the first 200 watches in the order of this column.
const sorts = { 'Open for': 'age', Events: 'events', User: 'user' };

export const watches = {
  title: 'Watches',
  topic: 'watches',
  lead: ({ actions }) => `Watches that clients have open.${actions ? '' : ' Start kubeweir with --console-actions to end watches here.'}`,
  open(app) {
    const query = { sort: 'age', resource: '', user: '' };
    const shown = el('p', { class: 'faint push' });
    let now = 0;
    const table = watchTable(app, () => now, (sort) => { query.sort = sort; app.follow(query); });
    let timer = 0;
    const box = (label, name) => {
      const id = newID(name);
      return el('div', { class: 'field' }, el('label', { for: id }, label), el('input', {
        id, type: 'search', autocomplete: 'off', spellcheck: 'false',
        oninput: (e) => {
          query[name] = e.target.value.trim();
          clearTimeout(timer);
          timer = setTimeout(() => app.follow(query), 250);
        },
      }));
    };
    return {
      nodes: [el('div', { class: 'tools' }, box('Resource', 'resource'), box('User', 'user'), shown), table.element],
      query: () => query,
      close: () => clearTimeout(timer),
      update(d) {
        now = Date.parse(d.at);
        table.update(d.watches);
        write(shown, d.shown < d.open ? `${count(d.shown)} of ${plural(d.open, 'open watch', 'open watches')}` : plural(d.open, 'open watch', 'open watches'));
      },
    };
  },
};

function watchTable(app, now, sorted) {
  const age = (r) => (now() - Date.parse(r.began)) / 1000;
  const columns = [
    { title: 'Watch', head: true, cell: twoLines(resource, selected), by: resource }, ...clusterColumn(app),
    { title: 'User', text: (r) => r.user, by: (r) => r.user, class: 'wide' },
    { title: 'User agent', text: (r) => r.userAgent || '(none)', by: (r) => r.userAgent, class: 'wide' },
    { title: 'Format', text: (r) => r.form, by: (r) => r.form },
    { title: 'Open for', number: true, text: (r) => seconds(age(r)), by: age },
    { title: 'Events', number: true, cell: twoLines((r) => count(r.events), (r) => (r.lagging ? 'lagging' : '')), by: (r) => r.events },
  ];
  if (app.session.actions) columns.push({ title: 'Action', unseen: true, cell: () => endButton(app) });
  return new Table({
    caption: 'Open watches', id: (r) => key(r.cluster, r.id), sort: 'Open for', down: true, columns,
    empty: 'No matching watch is open. Informers, “kubectl get --watch” and dashboards open watches.',
    onsort: ({ title }) => sorts[title] && sorted(sorts[title]),
  });
}

function endButton(app) {
  let watch = null;
  const button = el('button', {
    type: 'button', class: 'danger slim',
    onclick: () => app.act('end-watch', { cluster: watch.cluster, id: watch.id }, {
      title: 'End this watch?', button: 'End this watch',
      text: `The watch of ${resource(watch)} ${where(watch)} by ${watch.user} (${watch.userAgent || 'no user agent'}) will end. Most clients reconnect at once.`,
    }),
  }, 'End this watch');
  return {
    element: button,
    update(row) {
      watch = row;
      set(button, 'aria-label', `End this watch: ${resource(row)} ${where(row)} by ${row.user}`);
    },
  };
}
