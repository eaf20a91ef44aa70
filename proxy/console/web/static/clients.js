import { el, newID, set, write } from './dom.js';
import { bar } from './draw.js';
import { bytes, count, percent, seconds, time } from './format.js';
import { Table, twoLines } from './table.js';
import { choice, clusterColumn, key, section } from './text.js';

const views = [['users', 'User'], ['userAgents', 'User agent'], ['resources', 'Resource']];

// The gateway sorts: it knows more rows than it sends.
const sorts = {
  Requests: ['requests', count], Sent: ['bytes', bytes], 'CPU time': ['cpu', seconds], 'Open watches': ['watches', count],
  'Upstream requests': ['upstreamRequests', count], 'Upstream bytes': ['upstreamBytes', bytes],
};
const fields = { requests: 'requests', bytes: 'bytes', cpu: 'cpuSeconds', watches: 'watches', upstreamRequests: 'upstreamRequests', upstreamBytes: 'upstreamBytes' };

export const clients = {
  title: 'Clients',
  topic: 'clients',
  lead: () => 'Usage by client: the top 25 users, user agents and resources by requests, traffic, CPU and upstream load.',
  open(app) {
    const query = { window: '1m', sort: 'requests' };
    let view = 'users';
    let last = null;
    const total = el('p', { class: 'lead small' });
    const shown = { total: null, field: 'requests' };
    const tables = new Map(views.map(([name, title]) => [name, usageTable(app, title, shown, (sort) => {
      query.sort = sort;
      shown.field = fields[sort];
      app.follow(query);
    })]));
    const choose = (name) => {
      view = name;
      for (const [n, table] of tables) set(table.element, 'hidden', n !== view);
    };
    choose(view);
    const [budgets, blocked] = [budgetTable(app), blockedTable(app)];
    const update = (d) => {
      last = d;
      shown.total = d.total;
      for (const [name, table] of tables) table.update(d[name]);
      write(total, summary(d));
      budgets.update(d.budgets ?? []);
      blocked.update(d.blocked ?? []);
    };
    return {
      nodes: [
        el('div', { class: 'tools' },
          choice('By', views, view, (name) => { choose(name); if (last) update(last); }),
          choice('Window', [['1m', '1 minute'], ['1h', '1 hour']], query.window, (w) => { query.window = w; app.follow(query); })),
        el('h2', { class: 'unseen' }, 'Usage'),
        ...[...tables.values()].map((t) => t.element), total, budgets.element, blocked.element,
      ],
      query: () => query,
      update,
    };
  },
};

function summary({ total: t, covers, window }) {
  const span = covers && covers < 0.95 * window ? ` (of the last ${seconds(covers)})` : '';
  return `Total${span}: ${count(t.requests)} requests, ${bytes(t.bytes)} sent, ${seconds(t.cpuSeconds)} of CPU time, ${count(t.watches)} open watches; ${count(t.upstreamRequests)} upstream requests, ${bytes(t.upstreamBytes)} received.`;
}

function shareCell(shown) {
  return () => {
    const [fill, text] = [bar(), el('span')];
    return {
      element: el('div', null, text, fill.element),
      update(row) {
        const all = shown.total?.[shown.field];
        write(text, all ? percent(row[shown.field] / all) : '–');
        fill.update(all ? row[shown.field] / all : 0);
      },
    };
  };
}

function usageTable(app, title, shown, sorted) {
  const number = (name) => {
    const [sort, format] = sorts[name];
    return { title: name, number: true, text: (r) => format(r[fields[sort]]), by: (r) => r[fields[sort]] };
  };
  const columns = [
    { title, head: true, find: (r) => r.name, by: (r) => r.name,
      cell: twoLines((r) => r.name || '(none)', (r) => (r.missing ? `up to ${count(r.missing)} requests not counted` : '')) },
    ...clusterColumn(app),
    { title: 'Share', cell: shareCell(shown) },
    ...Object.keys(sorts).map(number),
    { title: 'Rejected', number: true, text: (r) => count(r.rejected), by: (r) => r.rejected },
  ];
  if (title === 'User agent' && app.session.actions) {
    columns.push({ title: 'Action', unseen: true, cell: () => blockButton(app) });
  }
  return new Table({
    caption: `Usage by ${title.toLowerCase()}`, id: (r) => key(r.cluster, r.name), sort: 'Requests', down: true, columns,
    empty: 'No requests in this window.',
    onsort: ({ title: name }) => sorts[name] && sorted(sorts[name][0]),
  });
}

function blockButton(app) {
  let agent = '';
  const id = newID('block');
  const button = el('button', {
    type: 'button', class: 'danger slim', id,
    onclick: () => app.act('block-user-agent', { userAgent: agent, minutes: 60 }, {
      title: 'Block this user agent for an hour?', button: 'Block it',
      text: `All requests from “${agent}” are rejected with status 429, and its watches end. You can unblock it below.`,
    }),
  }, 'Block');
  return {
    element: button,
    update(row) {
      agent = row.name;
      set(button, 'aria-label', `Block ${agent}`);
    },
  };
}

const bounds = (r) => [r.requestsPerSecond && `${count(r.requestsPerSecond)} requests/s`, r.bytesPerSecond && `${bytes(r.bytesPerSecond)}/s`].filter(Boolean).join(', ');

function budgetTable(app) {
  const table = new Table({
    caption: 'Upstream budgets', id: (r) => key(r.cluster, r.rule, r.who),
    empty: 'No rule sets a budget. A budget limits the load that a user, group or user agent may put on the cluster: see rules in docs/config.md.',
    columns: [
      { title: 'Rule', head: true, text: (r) => r.rule, by: (r) => r.rule }, ...clusterColumn(app),
      { title: 'Applies to', text: (r) => r.who, by: (r) => r.who, class: 'wide' },
      { title: 'Limit', text: bounds },
      { title: 'Rejected', number: true, text: (r) => count(r.rejected), by: (r) => r.rejected },
      { title: 'Served from the cache', number: true, text: (r) => count(r.servedStale), by: (r) => r.servedStale },
    ],
  });
  return { element: section('Upstream budgets', table.element), update: (rows) => table.update(rows) };
}

function blockedTable(app) {
  const columns = [
    { title: 'User agent', head: true, text: (r) => r.userAgent, by: (r) => r.userAgent },
    { title: 'Since', text: (r) => time(r.since), by: (r) => r.since },
    { title: 'Until', text: (r) => (r.until ? time(r.until) : 'unblocked'), by: (r) => r.until ?? '' },
    { title: 'Rejected', number: true, text: (r) => count(r.rejected), by: (r) => r.rejected },
  ];
  if (app.session.actions) {
    columns.push({ title: 'Action', unseen: true, cell: () => {
      let agent = '';
      const button = el('button', { type: 'button', class: 'slim', onclick: () => app.act('unblock-user-agent', { userAgent: agent }, {
        title: 'Unblock this user agent?', text: `Requests from “${agent}” will be served again.`, button: 'Unblock it',
      }) }, 'Unblock');
      return { element: button, update: (r) => { agent = r.userAgent; set(button, 'aria-label', `Unblock ${agent}`); } };
    } });
  }
  const table = new Table({ caption: 'Blocked user agents', id: (r) => r.userAgent, empty: 'No user agent is blocked.', columns });
  return { element: section('Blocked user agents', table.element), update: (rows) => table.update(rows) };
}
