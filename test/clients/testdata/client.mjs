// An HTTP/2 client that executes orders in JSON over one connection, with Node's http2.
//
// Arguments: URL CA-FILE. Each order on standard input begins a request, or resumes or cancels one;
// each line on standard output is a part of a response.
import http2 from 'node:http2';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const [url, ca] = process.argv.slice(2);
const tell = line => process.stdout.write(JSON.stringify(line) + '\n');
const session = http2.connect(url, { ca: readFileSync(ca) });
// A held stream uses up its own window, but not the connection's.
session.on('connect', () => session.setLocalWindowSize(16 << 20));
session.on('goaway', (code, last) => tell({ goaway: true, code, last }));
session.on('error', e => tell({ failed: String(e) }));
const streams = new Map();

function begin({ id, method, path, header, body, trailer, hold }) {
  const stream = session.request(
    { ':method': method, ':path': path, ...header, ...(body && { 'content-length': body.length }) },
    { endStream: !body && !trailer, waitForTrailers: !!trailer });
  const read = () => stream.on('data', data => tell({ id, data }));
  streams.set(id, { stream, read });
  const informational = [];
  let failed = false;
  stream.on('headers', h => informational.push(h[':status']));
  stream.on('response', h => {
    tell({ id, status: h[':status'], informational, protocol: session.alpnProtocol });
    stream.setEncoding('latin1');
    if (!hold) read();
  });
  stream.on('error', e => { failed = true; tell({ id, error: String(e) }); });
  stream.on('close', () => { if (!failed) tell(stream.rstCode ? { id, error: `reset: ${stream.rstCode}` } : { id, end: true }); });
  stream.on('wantTrailers', () => stream.sendTrailers(trailer));
  if (header?.Expect) stream.on('continue', () => stream.end(body));
  else if (body || trailer) stream.end(body);
}

const orders = createInterface({ input: process.stdin });
orders.on('line', line => {
  const order = JSON.parse(line);
  if (order.resume) streams.get(order.id).read();
  else if (order.cancel) streams.get(order.id).stream.close(http2.constants.NGHTTP2_CANCEL);
  else begin(order);
});
orders.on('close', () => process.exit());
