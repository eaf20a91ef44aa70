// An HTTP client in a page that executes orders in JSON with fetch, over one connection of the
// browser. Each order begins a request, opens a WebSocket, or resumes or cancels a request; each
// report is a part of a response.
(() => {
  const tell = line => say(JSON.stringify(line));
  const requests = new Map();

  // The browser records the protocol of a fetch only after it has completed.
  function protocolOf(url) {
    return new Promise(resolve => {
      const observer = new PerformanceObserver(entries => {
        const [entry] = entries.getEntriesByName(url);
        if (!entry) return;
        observer.disconnect();
        resolve(entry.nextHopProtocol);
      });
      observer.observe({ type: 'resource', buffered: true });
    });
  }
  performance.setResourceTimingBufferSize(10000);

  async function begin({ id, method, path, header, body, hold }) {
    const abort = new AbortController();
    let resume;
    const resumed = new Promise(resolve => { resume = resolve; });
    requests.set(id, { abort, resume });
    try {
      const url = new URL(path, location);
      const response = await fetch(url, { method, headers: header, body: body || undefined, cache: 'no-store', signal: abort.signal });
      tell({ id, status: response.status });
      if (hold) await resumed;
      const reader = response.body.getReader();
      const decoder = new TextDecoder('latin1');
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        tell({ id, data: decoder.decode(value) });
      }
      tell({ id, end: true, protocol: await protocolOf(url.href) });
    } catch (e) {
      tell({ id, error: String(e) });
    }
  }

  // A WebSocket ends cleanly if both sides close it.
  function open({ id, path, protocols }) {
    const url = new URL(path, location);
    url.protocol = 'wss';
    const socket = new WebSocket(url, protocols);
    requests.set(id, { abort: { abort: () => socket.close(1000) } });
    socket.addEventListener('open', () => tell({ id, status: 200 }));
    socket.addEventListener('message', ({ data }) => tell({ id, data }));
    socket.addEventListener('close', e => tell(e.wasClean ? { id, end: true } : { id, error: `${e.code} ${e.reason}` }));
  }

  // Otherwise the browser would request an icon without credentials, and the gateway would close
  // the connection.
  addEventListener('DOMContentLoaded', () => {
    const icon = document.createElement('link');
    icon.rel = 'icon';
    icon.href = 'data:,';
    document.head.append(icon);
  });

  window.hear = line => {
    const order = JSON.parse(line);
    if (order.resume) requests.get(order.id).resume();
    else if (order.cancel) requests.get(order.id).abort.abort();
    else if (order.protocols) open(order);
    else begin(order);
  };
})();
