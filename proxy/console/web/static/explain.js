import { explain as ask } from './api.js';
import { arrange, el, newID } from './dom.js';
import { state } from './draw.js';
import { bytes, count } from './format.js';

const routes = {
  cached: ['good', 'Served from the cache'],
  revalidated: ['good', 'Served from the cache after revalidation'],
  collapsed: ['good', 'Served by a coalesced upstream request'],
  forwarded: ['warn', 'Forwarded'],
  gateway: ['good', 'Served by kubeweir'],
  rejected: ['bad', 'Rejected'],
  unknown: ['idle', 'Not known in advance'],
};

export const explain = {
  title: 'Explain a request',
  lead: () => 'How kubeweir would serve a request, and why. Nothing is sent.',
  open(app) {
    const result = el('div', { role: 'region', 'aria-label': 'Explanation' });
    const field = (label, name, attributes, hint) => {
      const id = newID(name);
      return el('div', { class: 'field' }, el('label', { for: id }, label),
        el('input', { id, name, autocomplete: 'off', spellcheck: 'false', 'aria-describedby': hint ? `${id}-hint` : null, ...attributes }),
        hint && el('span', { class: 'faint small', id: `${id}-hint` }, hint));
    };
    const method = newID('method');
    const form = el('form', { class: 'form', 'aria-label': 'Request', onsubmit: (e) => { e.preventDefault(); submit(app, form, result); } },
      el('div', { class: 'pair' },
        el('div', { class: 'field' }, el('label', { for: method }, 'Method'),
          el('select', { id: method, name: 'method' }, ...['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'].map((m) => el('option', null, m)))),
        field('Path and query', 'path', { required: true, class: 'code', placeholder: '/api/v1/pods?limit=50' })),
      el('div', { class: 'half' },
        field('User', 'user', { required: true, placeholder: 'jane' }),
        field('Groups', 'groups', { placeholder: 'system:authenticated' }, 'comma-separated')),
      el('div', { class: 'half' },
        field('User agent', 'userAgent', {}, 'rules may match it'),
        field('Accept', 'accept', { class: 'code', placeholder: 'application/json' })),
      el('p', { class: 'actions' }, el('button', { class: 'main' }, 'Explain')));
    return { nodes: [form, result] };
  },
};

async function submit(app, form, result) {
  const { groups, ...rest } = Object.fromEntries(new FormData(form));
  const request = {
    ...Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, value.trim()]).filter(([, value]) => value)),
    groups: groups.split(',').map((g) => g.trim()).filter(Boolean),
    cluster: app.cluster || undefined,
  };
  try {
    const answer = await ask(request);
    show(result, answer);
    app.say(`${routes[answer.route]?.[1] ?? answer.route}. ${answer.text}`);
  } catch (error) {
    arrange(result, [el('div', { class: 'problem', role: 'alert' }, el('p', null, error.message))]);
  }
}

const yes = (value) => (value === true ? 'yes' : value === false ? 'no' : Array.isArray(value) ? value.join(', ') : String(value));

function pairs(object) {
  return el('dl', { class: 'facts' }, ...Object.entries(object)
    .filter(([, value]) => value !== undefined && value !== null && value !== '')
    .flatMap(([name, value]) => [el('dt', null, name), el('dd', null, yes(value))]));
}

// rules lists the settings with the rule that decides each, in the order of the document.
function rules(settings) {
  return el('dl', { class: 'facts' }, ...settings.flatMap(({ name, value, rule }) => [el('dt', null, name),
    el('dd', null, value, ' ', el('span', { class: 'faint small' }, rule ? `by ${rule}` : 'by default'))]));
}

function show(result, { request, route, reason, text, permission, visible, settings, collection, cost, steps }) {
  const mark = state();
  mark.update(...(routes[route] ?? ['idle', route]));
  const sheet = (title, ...nodes) => el('section', null, el('h2', null, title), el('div', { class: 'sheet pad' }, ...nodes));
  const sizes = [collection && `The collection is ${collection.state}: ${count(collection.objects)} objects, ${bytes(collection.bytes)}.`,
    cost?.upstreamRequests !== undefined && `Upstream requests: ${count(cost.upstreamRequests)}.`].filter(Boolean).join(' ');
  arrange(result, [
    sheet('Route', el('p', { class: 'answer' }, mark.element), el('p', null, text),
      reason && el('p', { class: 'faint small' }, 'Reason: ', el('code', null, reason), ' (docs/reasons.md)')),
    el('div', { class: 'columns' },
      permission && sheet('Permission', el('p', null, permission.text), visible && el('p', null, visible.text)),
      cost && sheet('Cost', el('p', null, cost.text), sizes && el('p', { class: 'faint small' }, sizes))),
    sheet('Steps', el('ol', { class: 'steps' }, ...(steps ?? []).map((s) => el('li', null,
      el('div', null, el('b', null, s.step), ': ', s.text))))),
    el('div', { class: 'columns' }, request && sheet('Request', pairs(request)), settings && sheet('Settings in force', rules(settings))),
  ].filter(Boolean));
}
