// The live stream of the open page: one at a time, reconnected when lost, closed while the page is hidden.

import { events } from './api.js';

// A document arrives every second; without one for this long the stream is considered lost.
const silence = 10_000;
const longestWait = 30_000;

export class Live {
  #changed;
  #following = null;
  #stop = new AbortController();
  #wake = () => {};

  /** changed receives the state ('live', 'lost' or 'rejected') and, for the last two, the error. */
  constructor(changed) {
    this.#changed = changed;
    document.addEventListener('visibilitychange', () => {
      this.#stop.abort();
      if (!document.hidden && this.#following) this.#start();
    });
  }

  /** follow passes each document of the topics to deliver, and ends the previous subscription. */
  follow(query, deliver) {
    this.#stop.abort();
    this.#following = { query, deliver };
    if (!document.hidden) this.#start();
  }

  end() {
    this.#stop.abort();
    this.#following = null;
  }

  /** retry reconnects a lost stream at once. */
  retry() {
    this.#wake();
  }

  #start() {
    this.#stop = new AbortController();
    this.#run(this.#following, this.#stop.signal);
  }

  async #run({ query, deliver }, signal) {
    for (let wait = 1000; !signal.aborted; wait = Math.min(2 * wait, longestWait)) {
      let why = null;
      try {
        await this.#stream(query, signal, (name, document) => {
          wait = 1000;
          this.#changed('live');
          deliver(name, document);
        });
      } catch (error) {
        why = error;
      }
      if (signal.aborted) return;
      if (why?.status === 401 || why?.status === 403 || why?.status === 404) {
        this.#changed('rejected', why);
        return;
      }
      this.#changed('lost', why);
      // Jitter: tabs that lost the same gateway do not reconnect at the same moment.
      await this.#pause(wait * (0.5 + Math.random() / 2), signal);
    }
  }

  async #stream(query, signal, deliver) {
    const silent = new AbortController();
    let timer = setTimeout(() => silent.abort(), silence);
    try {
      for await (const { name, document } of events(query, AbortSignal.any([signal, silent.signal]))) {
        clearTimeout(timer);
        if (signal.aborted || name === 'end') return;
        deliver(name, document);
        timer = setTimeout(() => silent.abort(), silence);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  #pause(milliseconds, signal) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
      signal.addEventListener('abort', this.#wake, { once: true });
    });
  }
}
