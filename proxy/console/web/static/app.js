// The frame of all pages: login, choice of cluster and page, and the live stream.

import { act, get, hasToken, keepToken } from './api.js';
import { state } from './draw.js';
import { arrange, el, newID, set, write } from './dom.js';
import { clock } from './format.js';
import { Live } from './live.js';
import { clients } from './clients.js';
import { checks } from './checks.js';
import { collections } from './collections.js';
import { config } from './config.js';
import { explain } from './explain.js';
import { overview } from './overview.js';
import { permissions } from './permissions.js';
import { store } from './store.js';
import { upstreams } from './upstreams.js';
import { watches } from './watches.js';

const pages = { overview, collections, clients, watches, upstreams, permissions, checks, explain, config, store };

const at = (id) => document.getElementById(id);
const frame = {
  page: at('page'), nav: at('nav'), banner: at('banner'), said: at('said'), live: at('live'), menu: at('menu'),
  mode: at('mode'), cluster: at('cluster'), choice: at('cluster-choice'),
};

/** App holds the session and the chosen cluster, and opens pages. */
class App {
  session = null;
  cluster = ''; // all of them, or the one without a name
  #page = null;
  #name = '';
  #left = new AbortController(); // aborted when the page is left
  #live = new Live((what, error) => this.#liveIs(what, error));
  #ready = state();
  #connection = state();
  #lostAt = null;

  async start() {
    this.#fail(null);
    try {
      this.session = await get('session');
    } catch (error) {
      this.#notStarted(error);
      return;
    }
    arrange(frame.live, [this.#ready.element, this.#connection.element]);
    this.#introduce();
    this.#open(false);
  }

  /** several reports whether rows must name their cluster. */
  get several() {
    return this.session.clusters.length > 1 && !this.cluster;
  }

  /** get fetches a document of the chosen cluster for the open page. */
  get(path, query) {
    return get(path, { ...query, cluster: this.cluster }, this.#left.signal);
  }

  /** follow subscribes to the page's topic with these parameters. */
  follow(query) {
    const topics = ['overview'];
    const { topic } = pages[this.#name];
    if (topic && topic !== 'overview') topics.push(topic);
    this.#live.follow({ ...query, topics: topics.join(','), cluster: this.cluster }, (name, document) => {
      if (name === 'overview') this.#ready.update(document.ready ? 'good' : 'bad', document.ready ? 'Ready' : 'Not ready');
      if (name === topic) this.#deliver(document);
    });
  }

  /** say announces an event to screen readers. */
  say(text) {
    write(frame.said, '');
    write(frame.said, text);
  }

  /** act performs an action after the operator confirms it, and shows the outcome. */
  async act(name, order, { title, text, button }) {
    if (!await agreed(title, text, button)) return;
    try {
      const answer = await act(name, order);
      this.#tell(answer.text, false);
    } catch (error) {
      this.#tell(error.message, true);
    }
  }

  /** route opens the page in the address. */
  route() {
    if (this.session) this.#open(true);
  }

  choose(cluster) {
    location.hash = this.#address(this.#name, cluster);
  }

  #address(name, cluster = this.cluster) {
    return `#/${name}${cluster ? `?cluster=${encodeURIComponent(cluster)}` : ''}`;
  }

  #introduce() {
    const { clusters, mode, version } = this.session;
    write(frame.mode, `${mode} ${version}`);
    set(frame.cluster, 'hidden', clusters.length < 2);
    arrange(frame.choice, [el('option', { value: '' }, 'All clusters'), ...clusters.map((name) => el('option', { value: name }, name))]);
    frame.choice.value = this.cluster;
  }

  // After a lost connection, another process or version may respond.
  async #again() {
    try {
      this.session = await get('session');
      this.#introduce();
    } catch {
      // The live stream reports the error.
    }
  }

  #open(moved) {
    const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
    const there = this.session.pages.filter((name) => pages[name]);
    const name = there.includes(path) ? path : there[0];
    const params = new URLSearchParams(query);
    const cluster = this.session.clusters.includes(params.get('cluster')) ? params.get('cluster') : '';
    const same = name === this.#name;
    [this.#name, this.cluster] = [name, cluster];
    frame.choice.value = cluster;
    this.#left.abort();
    this.#left = new AbortController();
    this.#page?.close?.();
    const { title } = pages[name];
    document.title = `${title}${cluster ? ` of ${cluster}` : ''} – kubeweir`;
    arrange(frame.nav, [el('ul', null, ...there.map((n) => el('li', null,
      el('a', { href: this.#address(n), 'aria-current': n === name ? 'page' : null }, pages[n].title))))]);
    this.#menu(false);
    this.#show(pages[name], params);
    if (!moved || same) return;
    frame.page.querySelector('h1').focus();
    scrollTo(0, 0);
  }

  #show(definition, params) {
    const page = definition.open(this, params);
    const waiting = el('p', { class: 'empty' }, 'Loading …');
    const body = el('div', { hidden: true }, ...page.nodes);
    const problem = el('div', { class: 'problem', hidden: true }, el('p'));
    this.#page = { ...page, waiting, body, problem };
    arrange(frame.page, [
      el('h1', { tabindex: '-1' }, definition.title), el('p', { class: 'lead' }, definition.lead(this.session)), waiting, problem, body,
    ]);
    this.follow(page.query?.() ?? {});
    if (!definition.topic) this.#loadOnce(definition, page);
  }

  async #loadOnce(definition, page) {
    const { signal } = this.#left;
    try {
      this.#deliver(definition.path ? await this.get(definition.path) : null);
    } catch (error) {
      if (!signal.aborted && this.#page.nodes === page.nodes) this.#problem(error);
    }
  }

  #deliver(document) {
    const { waiting, body, problem, update } = this.#page;
    set(problem, 'hidden', true);
    set(body, 'hidden', false);
    set(waiting, 'hidden', true);
    update?.(document);
  }

  #problem(error) {
    const { waiting, problem } = this.#page;
    write(problem.firstChild, error.message);
    set(problem, 'hidden', false);
    set(waiting, 'hidden', true);
  }

  #liveIs(what, error) {
    if (what === 'live') {
      this.#connection.update('idle', 'live');
      if (this.#lostAt) {
        this.#lostAt = null;
        this.#fail(null);
        this.#again();
        this.say('Live figures resumed.');
      }
      return;
    }
    if (error?.status === 401) {
      this.#live.end();
      keepToken(null);
      this.#logIn('The token is no longer accepted.');
      return;
    }
    if (what === 'rejected') {
      this.#problem(error);
      return;
    }
    this.#ready.update('idle', 'Unknown');
    this.#connection.update('warn', 'not live');
    if (this.#lostAt) return;
    this.#lostAt = new Date();
    const why = error?.status ? ` ${error.message}.` : '';
    const begin = this.#page.waiting.hidden ? `Live stream lost: figures are as of ${clock(this.#lostAt)}.` : 'There is no live stream.';
    this.#fail(`${begin}${why} Reconnecting automatically.`,
      { button: 'Try now', press: () => this.#live.retry() });
  }

  #fail(text, { button, press, bad } = {}) {
    if (!text) {
      arrange(frame.banner, []);
      return;
    }
    arrange(frame.banner, [el('div', { class: bad ? 'banner bad' : 'banner' }, el('p', null, text),
      button && el('button', { type: 'button', onclick: press }, button))]);
  }

  // The outcome of an action stays until it is closed or replaced by the next one.
  #tell(text, bad) {
    this.#fail(text, { button: 'Close', bad, press: () => { this.#fail(null); frame.page.querySelector('h1').focus(); } });
  }

  #menu(open) {
    set(frame.menu, 'aria-expanded', String(open));
    frame.nav.classList.toggle('shut', !open && !frame.menu.hidden);
  }

  toggleMenu() {
    this.#menu(frame.menu.getAttribute('aria-expanded') !== 'true');
  }

  /** narrow shows the menu button when the window has no room for the list of pages. */
  narrow(is) {
    set(frame.menu, 'hidden', !is);
    this.#menu(false);
  }

  #notStarted(error) {
    if (error.status === 401) {
      this.#logIn(hasToken() ? 'The token is not accepted.' : null);
      return;
    }
    const again = el('button', { type: 'button', class: 'main', onclick: () => this.start() }, 'Try again');
    const hint = error.status === 403
      ? 'Without --console-token-file, only browsers on the same machine can use the console: open it at the loopback address, for example through “kubectl port-forward”, or start kubeweir with --console-token-file.'
      : 'kubeweir may be starting or may have exited; see its log.';
    document.title = 'Unavailable – kubeweir';
    arrange(frame.page, [el('h1', { tabindex: '-1' }, 'Console unavailable'),
      el('div', { class: 'problem' }, el('p', null, error.message), el('p', null, hint)),
      el('div', { class: 'form' }, el('p', { class: 'actions' }, again))]);
  }

  #logIn(why) {
    const id = newID('token');
    const input = el('input', {
      id, type: 'password', autocomplete: 'off', required: true, 'aria-describedby': why ? `${id}-why` : null, 'aria-invalid': why ? 'true' : null,
    });
    document.title = 'Log in – kubeweir';
    arrange(frame.nav, []);
    arrange(frame.page, [el('h1', { tabindex: '-1' }, 'Log in'),
      el('p', { class: 'lead' }, 'Enter the token in --console-token-file. The browser keeps it until this tab is closed, and sends it only to this kubeweir.'),
      el('form', {
        class: 'form', 'aria-label': 'Log in',
        onsubmit: (e) => {
          e.preventDefault();
          keepToken(input.value.trim());
          this.start();
        },
      },
      why && el('p', { class: 'bad-text', id: `${id}-why` }, why),
      el('div', { class: 'field' }, el('label', { for: id }, 'Token'), input),
      el('p', { class: 'actions' }, el('button', { class: 'main' }, 'Log in')))]);
    input.focus();
  }
}

// agreed asks the operator to confirm an action.
function agreed(title, text, button) {
  return new Promise((resolve) => {
    const id = newID('question');
    const dialog = el('dialog', { 'aria-labelledby': id, 'aria-describedby': `${id}-text` },
      el('h2', { id }, title), el('p', { id: `${id}-text`, class: 'wide' }, text),
      el('form', { method: 'dialog', class: 'actions', 'aria-label': title },
        el('button', { value: 'no', autofocus: true }, 'Cancel'), el('button', { value: 'yes', class: 'danger' }, button)));
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

const app = new App();
addEventListener('hashchange', () => app.route());
at('skip').addEventListener('click', (e) => {
  e.preventDefault(); // its address is not that of a page
  (frame.page.querySelector('h1') ?? frame.page).focus();
});
frame.choice.addEventListener('change', () => app.choose(frame.choice.value));
frame.menu.addEventListener('click', () => app.toggleMenu());
const narrow = matchMedia('(max-width: 52rem)');
narrow.addEventListener('change', () => app.narrow(narrow.matches));
app.narrow(narrow.matches);
app.start();
