import { el, set, write } from './dom.js';
import { bar, chart, share, state } from './draw.js';
import { byteRate, bytes, count, percent, plural, rate, seconds } from './format.js';
import { checkList, figures, key, listOf, section } from './text.js';

const sources = [
  { name: 'cached', title: 'Cache' },
  { name: 'revalidated', title: 'Cache (revalidated)' },
  { name: 'collapsed', title: 'Coalesced' },
  { name: 'forwarded', title: 'Forwarded' },
  { name: 'gateway', title: 'kubeweir' },
];

export const overview = {
  title: 'Overview',
  topic: 'overview',
  lead: ({ mode }) => (mode === 'gateway'
    ? 'Cache hit ratio, and the load kept off the cluster.'
    : 'Requests to this API server, and the share served from the cache.'),
  open: (app) => {
    const parts = [readiness(app), traffic(app), responses(), history(), budgets()];
    return { nodes: parts.flatMap((p) => p.nodes), update: (d) => parts.forEach((p) => p.update(d)) };
  },
};

function readiness(app) {
  const mark = state();
  const since = el('span', { class: 'faint' });
  const list = checkList();
  const reach = el('p', { class: 'faint small wide' });
  return {
    nodes: [el('section', { class: 'sheet pad' }, el('h2', { class: 'unseen' }, 'Readiness'),
      el('p', { class: 'actions' }, el('span', { class: 'answer' }, mark.element), since), reach, list.element)],
    update(d) {
      const failing = d.checks.filter((c) => !c.ok);
      mark.update(d.ready ? 'good' : 'bad', d.ready ? 'Ready' : 'Not ready');
      write(since, `up for ${seconds((Date.parse(d.at) - Date.parse(app.session.started)) / 1000)}`);
      list.update(failing);
      set(list.element, 'hidden', failing.length === 0);
      const { upstream } = d;
      const [yes, no] = app.several ? ['All clusters are reachable', 'Some clusters are unreachable'] : ['The cluster is reachable', 'The cluster is unreachable'];
      write(reach, upstream ? `${upstream.reachable ? yes : no}${upstream.delay ? `, delay ${seconds(upstream.delay)}` : ''}.` : '');
      set(reach, 'hidden', !upstream);
    },
  };
}

function traffic(app) {
  const numbers = figures('Cache hit ratio', 'Requests', 'Sent to clients', 'Open watches', 'Events sent', 'Cached objects', 'Max feed lag', 'CPU');
  const saved = figures('Requests saved', 'Bytes saved', 'CPU time saved');
  const how = el('p', { class: 'lead small' });
  const load = section(app.session.mode === 'gateway' ? 'Upstream load saved' : 'Store load saved', saved.element, how);
  return {
    nodes: [section('Now', numbers.element), load],
    update(d) {
      const { reads, requests, bytes: sent, watches, collections: all, lag, cpu } = d;
      numbers.update([
        [percent(reads.hitShareRecent ?? reads.hitShare), `${percent(reads.hitShare)} of ${plural(reads.total, 'read')} since the start`],
        [rate(requests.rate), `${count(requests.total)} in all, ${plural(requests.errors.total, 'error')}`],
        [byteRate(sent.sent.rate), sent.upstream ? `received ${byteRate(sent.upstream.rate)}` : `${bytes(sent.sent.total)} in all`],
        [count(watches.open), `${plural(watches.upstream, 'upstream watch', 'upstream watches')}${watches.lagging ? `; ${count(watches.lagging)} lagging` : ''}`],
        [rate(watches.eventsOut.rate), `${rate(watches.eventsIn.rate)} received`],
        [count(all.objects), `${bytes(all.bytes)} in ${plural(all.total, 'collection')}${trouble(all)}`],
        [seconds(lag.seconds), lag.collection || 'no collections'],
        [cpu.cores === null ? '–' : `${cpu.cores.toFixed(2)} cores`, `of ${count(cpu.gomaxprocs)} cores; ${seconds(cpu.seconds)} since the start`],
      ]);
      saved.update([
        [count(d.saved.requests), 'since the start'], [bytes(d.saved.bytes), 'since the start'], [seconds(d.saved.cpuSeconds), 'estimated'],
      ]);
      write(how, d.saved.estimate);
    },
  };
}

function trouble({ stale, stopped, starting }) {
  const parts = [[stale, 'stale'], [stopped, 'stopped'], [starting, 'starting']].filter(([n]) => n);
  return parts.length ? `: ${parts.map(([n, what]) => `${count(n)} ${what}`).join(', ')}` : '';
}

function responses() {
  const drawing = share('Responses since the start', sources, percent);
  return {
    nodes: [section('Responses by source', el('div', { class: 'sheet pad' }, drawing.element))],
    update: ({ requests: { bySource } }) => drawing.update(Object.fromEntries(sources.map(({ name }) => {
      const { total = 0, rate: now = null } = bySource[name] ?? {};
      return [name, { n: total, detail: `${count(total)}, now ${rate(now)}` }];
    }))),
  };
}

function history() {
  const charts = [
    ['cachedRate', chart('Served from the cache', rate)], ['forwardedRate', chart('Forwarded', rate)],
    ['hitShare', chart('Cache hit ratio', percent, 1)], ['sentRate', chart('Sent to clients', byteRate)], ['watches', chart('Open watches', count)],
  ];
  return {
    nodes: [section('Last 15 minutes', el('div', { class: 'charts' }, ...charts.map(([, c]) => c.element)))],
    update: ({ series }) => charts.forEach(([name, c]) => c.update(series[name] ?? [], series.step)),
  };
}

const units = { bytes, seconds };

function budgets() {
  const numbers = figures('Resident memory', 'Heap in use', 'Memory limit');
  const list = listOf(el('ul', { class: 'meters' }), () => {
    const [name, text, setting, fill] = [el('span'), el('span'), el('span', { class: 'faint small wide' }), bar('meter')];
    return {
      element: el('li', null, name, text, fill.element, setting),
      update({ name: title, cluster, used, limit, unit, setting: path }) {
        const format = units[unit] ?? count;
        const what = units[unit] || !unit ? '' : ` ${unit}`;
        write(name, cluster ? `${title}, ${cluster}` : title);
        write(text, limit ? `${format(used)} of ${format(limit)}${what} (${percent(used / limit)})` : `${format(used)}${what}, no limit`);
        write(setting, path ?? '');
        fill.update(limit ? used / limit : 0, unit === 'requests' || unit === 'connections'); // a full cache is normal
      },
    };
  }, ({ name, cluster }) => key(name, cluster));
  return {
    nodes: [section('Memory', numbers.element), section('Limits',
      el('p', { class: 'lead' }, 'Limits and their use. A full cache evicts the least used entries.'),
      el('div', { class: 'sheet pad' }, list.element))],
    update({ memory }) {
      numbers.update([[bytes(memory.resident), 'of the process'], [bytes(memory.heap), ''],
        [memory.limit ? bytes(memory.limit) : 'none', memory.limit ? percent(memory.resident / memory.limit) : 'GOMEMLIMIT is not set']]);
      list.update(memory.budgets);
    },
  };
}
