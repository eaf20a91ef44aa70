// Acts like Headlamp's pages: it lists a resource, then watches it from the list's version over a
// WebSocket with Headlamp's subprotocol, in which each message is an event in JSON. It reports all
// events to the test.
(() => {
  const tell = line => say(JSON.stringify(line));

  async function watch(cluster, resource) {
    const response = await fetch(`${cluster}${resource}`);
    const list = await response.json();
    if (!response.ok) throw new Error(`${resource}: ${response.status} ${JSON.stringify(list)}`);
    const query = `watch=1&resourceVersion=${list.metadata.resourceVersion}`;
    const url = new URL(`${cluster}${resource}?${query}`, location);
    url.protocol = 'ws';
    const socket = new WebSocket(url, ['base64.binary.k8s.io']);
    socket.binaryType = 'arraybuffer';
    socket.addEventListener('open', () => tell({ resource, opened: socket.protocol }));
    socket.addEventListener('message', ({ data }) => {
      const { type, object } = JSON.parse(data);
      tell({ resource, type, name: object.metadata?.name, message: object.message });
    });
    socket.addEventListener('close', e => tell({ resource, closed: `${e.code} ${e.reason}` }));
  }

  window.hear = line => {
    const { cluster, resources } = JSON.parse(line);
    for (const resource of resources) watch(cluster, resource).catch(e => tell({ resource, closed: String(e) }));
  };
})();
