import { el, set, write } from './dom.js';
import { state } from './draw.js';
import { bytes, count, rate, seconds, time } from './format.js';
import { Table } from './table.js';
import { checkList, facts, key, listOf, resource } from './words.js';

const purposes = {
  client: 'Forwarded with the client’s token', impersonate: 'Forwarded by impersonation', own: 'As the gateway itself',
  list: 'Lists of feeds', watch: 'Watches of feeds', references: 'Names and versions', version: 'How new the cluster is',
  discovery: 'Discovery', review: 'Who asks and what they may do',
};

export const upstreams = {
  title: 'Upstreams',
  topic: 'upstreams',
  lead: () => 'The clusters behind this gateway: their API servers, and what they are asked for.',
  open: () => {
    const list = listOf(el('div'), cluster, ({ name }) => key(name));
    return { nodes: [list.element], update: (d) => list.update(d.clusters) };
  },
};

function cluster() {
  const [title, mark] = [el('h2'), state()];
  const about = facts('API server', 'Kubernetes', 'Answers after', 'Last contact', 'Since', 'Watches of feeds', 'Connections');
  const list = checkList();
  const [servers, requests, missing] = [serverTable(), requestTable(), missingTable()];
  const lacking = el('section', null, el('h3', null, 'Rights that the gateway lacks'),
    el('p', { class: 'lead small' }, '“kubeweir rbac” prints all that it needs. What it may not read it forwards.'), missing.element);
  return {
    element: el('section', null, title,
      el('div', { class: 'columns' },
        el('div', { class: 'sheet pad' }, el('p', { class: 'answer' }, mark.element), about.element),
        el('div', { class: 'sheet pad' }, el('h3', null, 'Readiness'), list.element)),
      el('section', null, el('h3', null, 'API servers'), servers.element),
      el('section', null, el('h3', null, 'Requests to the cluster'), requests.element), lacking),
    update(c) {
      write(title, c.name || 'The cluster');
      mark.update(c.reachable ? 'good' : 'bad', c.reachable ? 'Reachable' : 'No API server answers');
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
  empty: 'The one above is asked; --upstream-servers names several.',
  columns: [
    { title: 'Server', head: true, text: (r) => r.server, by: (r) => r.server },
    { title: 'State', cell: upCell, by: (r) => (r.up ? 1 : 0) },
    { title: 'Chosen first', text: (r) => (r.preferred ? 'yes' : 'no'), by: (r) => (r.preferred ? 0 : 1) },
    { title: 'Under way', number: true, text: (r) => count(r.outstanding), by: (r) => r.outstanding },
    { title: 'Requests', number: true, text: (r) => count(r.requests), by: (r) => r.requests },
    { title: 'Sent again', number: true, text: (r) => count(r.retries), by: (r) => r.retries },
    { title: 'Left out', number: true, text: (r) => count(r.ejections), by: (r) => r.ejections },
  ],
});

const requestTable = () => new Table({
  caption: 'Requests to the cluster', id: (r) => r.purpose, sort: 'Requests', down: true,
  empty: 'Nothing has been asked of the cluster yet.',
  columns: [
    { title: 'For', head: true, text: (r) => purposes[r.purpose] ?? r.purpose, by: (r) => purposes[r.purpose] ?? r.purpose },
    { title: 'Requests', number: true, text: (r) => count(r.total), by: (r) => r.total },
    { title: 'Now', number: true, text: (r) => rate(r.rate), by: (r) => r.rate },
    { title: 'Errors', number: true, text: (r) => count(r.errors), by: (r) => r.errors },
    { title: 'Received', number: true, text: (r) => bytes(r.bytes), by: (r) => r.bytes },
  ],
});

const missingTable = () => new Table({
  caption: 'Rights that the gateway lacks', id: (r) => key(r.verb, r.group, r.resource), sort: 'Resource', empty: 'None.',
  columns: [
    { title: 'Resource', head: true, text: resource, by: resource },
    { title: 'Verb', text: (r) => r.verb, by: (r) => r.verb },
  ],
});
