import { el, set, write } from './dom.js';
import { bar, chart, share, state } from './draw.js';
import { byteRate, bytes, count, percent, plural, rate, seconds } from './format.js';
import { checkList, figures, key, listOf, section } from './words.js';

const sources = [
  { name: 'cached', title: 'Cache' },
  { name: 'revalidated', title: 'Cache, versions checked' },
  { name: 'collapsed', title: 'Shared request' },
  { name: 'forwarded', title: 'Forwarded' },
  { name: 'gateway', title: 'kubeweir itself' },
];

export const overview = {
  title: 'Overview',
  topic: 'overview',
  lead: ({ mode }) => (mode === 'gateway'
    ? 'How much of what clients ask the cache answers, and what that spares the cluster.'
    : 'What clients ask of this API server, and how much of it the cache answers.'),
  open: (app) => {
    const parts = [readiness(app), traffic(app), answers(), history(), budgets()];
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
      const [yes, no] = app.several ? ['All clusters answer', 'Not every cluster answers'] : ['The cluster answers', 'No API server of the cluster answers'];
      write(reach, upstream ? `${upstream.reachable ? yes : no}${upstream.delay ? `, after ${seconds(upstream.delay)}` : ''}.` : '');
      set(reach, 'hidden', !upstream);
    },
  };
}

function traffic(app) {
  const numbers = figures('Hit share', 'Requests', 'Sent to clients', 'Watches open', 'Events sent', 'Objects held', 'Furthest behind', 'Processor');
  const saved = figures('Requests spared', 'Bytes spared', 'Processor time spared');
  const how = el('p', { class: 'lead small' });
  const spared = section(app.session.mode === 'gateway' ? 'Spared the cluster' : 'Spared the store', saved.element, how);
  return {
    nodes: [section('Now', numbers.element), spared],
    update(d) {
      const { reads, requests, bytes: sent, watches, collections: all, lag, cpu } = d;
      numbers.update([
        [percent(reads.hitShareRecent ?? reads.hitShare), `${percent(reads.hitShare)} of ${plural(reads.total, 'read')} since the start`],
        [rate(requests.rate), `${count(requests.total)} in all, ${plural(requests.errors.total, 'error')}`],
        [byteRate(sent.sent.rate), sent.upstream ? `received ${byteRate(sent.upstream.rate)}` : `${bytes(sent.sent.total)} in all`],
        [count(watches.open), `fed by ${plural(watches.upstream, 'watch', 'watches')}${watches.lagging ? `; ${count(watches.lagging)} behind` : ''}`],
        [rate(watches.eventsOut.rate), `from ${rate(watches.eventsIn.rate)} received`],
        [count(all.objects), `${bytes(all.bytes)} in ${plural(all.total, 'collection')}${trouble(all)}`],
        [seconds(lag.seconds), lag.collection ? `${lag.collection}, since its last sign of life` : 'no collection yet'],
        [cpu.cores === null ? '–' : `${cpu.cores.toFixed(2)} cores`, `of ${count(cpu.gomaxprocs)}; ${seconds(cpu.seconds)} since the start`],
      ]);
      saved.update([
        [count(d.saved.requests), 'since the start'], [bytes(d.saved.bytes), 'since the start'], [seconds(d.saved.cpuSeconds), 'an estimate'],
      ]);
      write(how, d.saved.estimate);
    },
  };
}

function trouble({ stale, stopped, starting }) {
  const parts = [[stale, 'stale'], [stopped, 'stopped'], [starting, 'starting']].filter(([n]) => n);
  return parts.length ? `: ${parts.map(([n, what]) => `${count(n)} ${what}`).join(', ')}` : '';
}

function answers() {
  const drawing = share('Answers since the start', sources, percent);
  return {
    nodes: [section('Where answers came from', el('div', { class: 'sheet pad' }, drawing.element))],
    update: ({ requests: { bySource } }) => drawing.update(Object.fromEntries(sources.map(({ name }) => {
      const { total = 0, rate: now = null } = bySource[name] ?? {};
      return [name, { n: total, detail: `${count(total)}, now ${rate(now)}` }];
    }))),
  };
}

function history() {
  const charts = [
    ['cachedRate', chart('Answered by the cache', rate)], ['forwardedRate', chart('Forwarded', rate)],
    ['hitShare', chart('Hit share', percent, 1)], ['sentRate', chart('Sent to clients', byteRate)], ['watches', chart('Watches open', count)],
  ];
  return {
    nodes: [section('The last minutes', el('div', { class: 'charts' }, ...charts.map(([, c]) => c.element)))],
    update: ({ series }) => charts.forEach(([name, c]) => c.update(series[name] ?? [], series.step)),
  };
}

const units = { bytes, seconds };

function budgets() {
  const numbers = figures('Resident memory', 'Heap in use', 'Limit of the runtime');
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
        fill.update(limit ? used / limit : 0, unit === 'requests' || unit === 'connections'); // a cache that is full is well
      },
    };
  }, ({ name, cluster }) => key(name, cluster));
  return {
    nodes: [section('Memory', numbers.element), section('Budgets',
      el('p', { class: 'lead' }, 'What may be kept, and how much of it is. A cache that is full drops what is used least.'),
      el('div', { class: 'sheet pad' }, list.element))],
    update({ memory }) {
      numbers.update([[bytes(memory.resident), 'what the system counts'], [bytes(memory.heap), ''],
        [memory.limit ? bytes(memory.limit) : 'none', memory.limit ? percent(memory.resident / memory.limit) : 'GOMEMLIMIT is not set']]);
      list.update(memory.budgets);
    },
  };
}
