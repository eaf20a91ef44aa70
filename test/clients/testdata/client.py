"""An HTTP/2 client that executes orders in JSON over one connection, with Python's h2.

Arguments: HOST PORT CA-FILE [INITIAL-WINDOW]. Each order on standard input begins a request, or
resumes or cancels one; each line on standard output is a part of a response.
"""
import json
import os
import select
import socket
import ssl
import sys

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings


class Connection(h2.connection.H2Connection):
    """h2 ends the connection on every GOAWAY. With NO_ERROR, streams up to the last one continue."""

    def _receive_goaway_frame(self, frame):
        state = self.state_machine.state
        result = super()._receive_goaway_frame(frame)
        if frame.error_code == 0:
            self.state_machine.state = state
        return result


class Client:
    def __init__(self, host, port, ca, window):
        context = ssl.create_default_context(cafile=ca)
        context.set_alpn_protocols(["h2"])
        self.sock = context.wrap_socket(socket.create_connection((host, port)), server_hostname=host)
        assert self.sock.selected_alpn_protocol() == "h2"
        self.authority = f"{host}:{port}"
        self.conn = Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        if window:
            self.conn.local_settings = h2.settings.Settings(
                client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window,
                                             h2.settings.SettingCodes.ENABLE_PUSH: 0})
        self.conn.initiate_connection()
        # A held stream uses up its own window, but not the connection's.
        self.conn.increment_flow_control_window(16 << 20)
        self.streams = {}  # stream by the test's number
        self.numbers = {}  # the test's number by stream
        self.held = {}     # unacknowledged bytes by stream
        self.unsent = {}   # body and trailers by stream
        self.answers = {}  # informational statuses by stream
        self.out = b""
        self.flush()
        self.sock.setblocking(False)

    def tell(self, **line):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def flush(self):
        self.out += self.conn.data_to_send()
        while self.out:
            try:
                self.out = self.out[self.sock.send(self.out):]
            except ssl.SSLWantWriteError:
                return

    def order(self, o):
        if o.get("resume"):
            stream = self.streams[o["id"]]
            size = self.held.pop(stream)
            if size:
                self.conn.acknowledge_received_data(size, stream)
        elif o.get("cancel"):
            self.conn.reset_stream(self.streams[o["id"]], error_code=8)
        else:
            self.request(o)
        self.flush()

    def request(self, o):
        stream = self.conn.get_next_available_stream_id()
        self.streams[o["id"]], self.numbers[stream] = stream, o["id"]
        if o.get("hold"):
            self.held[stream] = 0
        headers = [(":method", o["method"]), (":scheme", "https"), (":authority", self.authority), (":path", o["path"])]
        headers += [(k.lower(), v) for k, v in (o.get("header") or {}).items()]
        body, trailer = (o.get("body") or "").encode(), o.get("trailer")
        if body:
            headers.append(("content-length", str(len(body))))
        self.conn.send_headers(stream, headers, end_stream=not body and not trailer)
        if body or trailer:
            self.unsent[stream] = (body, trailer, bool(o.get("header", {}).get("Expect")))
            self.send(stream)

    def send(self, stream):
        body, trailer, expect = self.unsent[stream]
        if expect:
            return
        while body:
            size = min(len(body), self.conn.local_flow_control_window(stream), self.conn.max_outbound_frame_size)
            if size == 0:
                break
            try:
                self.conn.send_data(stream, body[:size], end_stream=size == len(body) and not trailer)
            except h2.exceptions.StreamClosedError:  # the response came before the whole body
                del self.unsent[stream]
                return
            body = body[size:]
        if body:
            self.unsent[stream] = (body, trailer, False)
            return
        if trailer:
            self.conn.send_headers(stream, [(k.lower(), v) for k, v in trailer.items()], end_stream=True)
        del self.unsent[stream]

    def event(self, e):
        number = self.numbers.get(getattr(e, "stream_id", None))
        if isinstance(e, h2.events.InformationalResponseReceived):
            self.answers.setdefault(e.stream_id, []).append(int(dict(e.headers)[":status"]))
            body, trailer, _ = self.unsent[e.stream_id]
            self.unsent[e.stream_id] = (body, trailer, False)
            self.send(e.stream_id)
        elif isinstance(e, h2.events.ResponseReceived):
            self.tell(id=number, status=int(dict(e.headers)[":status"]), informational=self.answers.pop(e.stream_id, []),
                      protocol="h2")
        elif isinstance(e, h2.events.DataReceived):
            if e.stream_id in self.held:
                self.held[e.stream_id] += e.flow_controlled_length
            elif e.flow_controlled_length:
                self.conn.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            self.tell(id=number, data=e.data.decode("latin-1"))
        elif isinstance(e, h2.events.StreamEnded):
            self.tell(id=number, end=True)
        elif isinstance(e, h2.events.StreamReset):
            self.unsent.pop(e.stream_id, None)
            self.tell(id=number, error=f"reset: {e.error_code}")
        elif isinstance(e, (h2.events.WindowUpdated, h2.events.RemoteSettingsChanged)):
            for stream in list(self.unsent):
                self.send(stream)
        elif isinstance(e, h2.events.ConnectionTerminated):
            self.tell(goaway=True, last=e.last_stream_id, code=int(e.error_code))

    def run(self):
        orders = b""
        while True:
            readable, _, _ = select.select([0, self.sock], [self.sock] if self.out else [], [])
            if self.out:
                self.flush()
            if 0 in readable:
                read = os.read(0, 1 << 20)
                if not read:
                    return
                orders += read
                *lines, orders = orders.split(b"\n")
                for line in lines:
                    self.order(json.loads(line))
            if self.sock in readable and not self.receive():
                return

    def receive(self):
        while True:
            try:
                data = self.sock.recv(64 << 10)
            except ssl.SSLWantReadError:
                return True
            if not data:
                return False
            for e in self.conn.receive_data(data):
                self.event(e)
            self.flush()


Client(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 0).run()
