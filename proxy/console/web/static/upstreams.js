import { el, set, write } from './dom.js';
import { state } from './draw.js';
import { bytes, count, rate, seconds, time } from './format.js';
import { Table } from './table.js';
import { checkList, facts, key, listOf, resource } from './text.js';

const purposes = {
  client: 'Forwarded with the client’s token', impersonate: 'Forwarded by impersonation', own: 'Forwarded as the gateway',
  list: 'Feed lists', watch: 'Feed watches', references: 'Object versions', version: 'Current version',
  discovery: 'Discovery', review: 'Token and access reviews',
};

export const upstreams = {
  title: 'Upstreams',
  topic: 'upstreams',
  lead: () => 'Clusters behind this gateway, their API servers, and the requests sent to them.',
  open: () => {
    const list = listOf(el('div'), cluster, ({ name }) => key(name));
    return { nodes: [list.element], update: (d) => list.update(d.clusters) };
  },
};

function cluster() {
  const [title, mark] = [el('h2'), state()];
  const about = facts('API server', 'Kubernetes', 'Delay', 'Last contact', 'Unreachable since', 'Feed watches', 'Connections');
  const list = checkList();
  const [servers, requests, missing] = [serverTable(), requestTable(), missingTable()];
  const lacking = el('section', null, el('h3', null, 'Missing permissions'),
    el('p', { class: 'lead small' }, '“kubeweir rbac” prints all permissions that the gateway needs. It forwards requests for resources that it may not read.'), missing.element);
  return {
    element: el('section', null, title,
      el('div', { class: 'columns' },
        el('div', { class: 'sheet pad' }, el('p', { class: 'answer' }, mark.element), about.element),
        el('div', { class: 'sheet pad' }, el('h3', null, 'Readiness'), list.element)),
      el('section', null, el('h3', null, 'API servers'), servers.element),
      el('section', null, el('h3', null, 'Requests to the cluster'), requests.element), lacking),
    update(c) {
      write(title, c.name || 'The cluster');
      mark.update(c.reachable ? 'good' : 'bad', c.reachable ? 'Reachable' : 'Unreachable');
      about.update([c.server, c.kubernetes, c.delay && seconds(c.delay), c.lastContact && time(c.lastContact), c.since && time(c.since), count(c.watches), count(c.connections)]);
      list.update(c.checks);
      servers.update(c.servers);
      requests.update(c.requests);
      missing.update(c.missingRights);
      set(lacking, 'hidden', c.missingRights.length === 0);
    },
  };
}

function upCell() {
  const mark = state();
  return { element: mark.element, update: (r) => mark.update(r.up ? 'good' : 'bad', r.up ? 'up' : 'down') };
}

const serverTable = () => new Table({
  caption: 'API servers', id: (r) => r.server, sort: 'Server',
  empty: 'The gateway uses the API server above; --upstream-servers names several.',
  columns: [
    { title: 'Server', head: true, text: (r) => r.server, by: (r) => r.server },
    { title: 'State', cell: upCell, by: (r) => (r.up ? 1 : 0) },
    { title: 'Preferred', text: (r) => (r.preferred ? 'yes' : 'no'), by: (r) => (r.preferred ? 0 : 1) },
    { title: 'In flight', number: true, text: (r) => count(r.outstanding), by: (r) => r.outstanding },
    { title: 'Requests', number: true, text: (r) => count(r.requests), by: (r) => r.requests },
    { title: 'Retries', number: true, text: (r) => count(r.retries), by: (r) => r.retries },
    { title: 'Ejections', number: true, text: (r) => count(r.ejections), by: (r) => r.ejections },
  ],
});

const requestTable = () => new Table({
  caption: 'Requests to the cluster', id: (r) => r.purpose, sort: 'Requests', down: true,
  empty: 'No requests yet.',
  columns: [
    { title: 'Purpose', head: true, text: (r) => purposes[r.purpose] ?? r.purpose, by: (r) => purposes[r.purpose] ?? r.purpose },
    { title: 'Requests', number: true, text: (r) => count(r.total), by: (r) => r.total },
    { title: 'Rate', number: true, text: (r) => rate(r.rate), by: (r) => r.rate },
    { title: 'Errors', number: true, text: (r) => count(r.errors), by: (r) => r.errors },
    { title: 'Received', number: true, text: (r) => bytes(r.bytes), by: (r) => r.bytes },
  ],
});

const missingTable = () => new Table({
  caption: 'Missing permissions', id: (r) => key(r.verb, r.group, r.resource), sort: 'Resource', empty: 'None.',
  columns: [
    { title: 'Resource', head: true, text: resource, by: resource },
    { title: 'Verb', text: (r) => r.verb, by: (r) => r.verb },
  ],
});
