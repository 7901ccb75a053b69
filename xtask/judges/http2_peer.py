#!/usr/bin/env python3
"""A strict peer of HTTP/2: python's h2, which refuses what is not as it should be; and one that behaves badly."""

import socket
import struct
import sys

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

ADDRESS = (sys.argv[1], int(sys.argv[2]))
PATIENCE = 60
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ENHANCE_YOUR_CALM = int(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
checks = 0


def check(good, what):
    global checks
    if not good:
        sys.exit(f"wrong: {what}")
    checks += 1


class Peer:
    """h2's connection over a socket."""

    def __init__(self):
        self.socket = socket.create_connection(ADDRESS, timeout=PATIENCE)
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.connection.initiate_connection()
        self.flush()

    def flush(self):
        self.socket.sendall(self.connection.data_to_send())

    def ask(self, method="GET", path="/", fields=(), end=True):
        stream = self.connection.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "http"), (":authority", "a.example"), (":path", path)]
        self.connection.send_headers(stream, head + list(fields), end_stream=end)
        self.flush()
        return stream

    def answers(self, *streams):
        """What came for each: status, body, trailers, or the code of a reset."""
        told = {stream: [None, b"", None, None] for stream in streams}
        left = set(streams)
        while left:
            bytes = self.socket.recv(65536)
            check(bytes, "the connection ended before all answers")
            for event in self.connection.receive_data(bytes):
                answer = told.get(getattr(event, "stream_id", None))
                if isinstance(event, h2.events.ResponseReceived):
                    answer[0] = int(dict(event.headers)[b":status"])
                elif isinstance(event, h2.events.DataReceived):
                    answer[1] += event.data
                    self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.TrailersReceived):
                    answer[2] = dict(event.headers)
                elif isinstance(event, h2.events.StreamReset):
                    answer[3] = int(event.error_code)
                    left.discard(event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    left.discard(event.stream_id)
            self.flush()
        return [told[stream] for stream in streams]

    def send(self, stream, body):
        while body:
            count = min(self.connection.local_flow_control_window(stream), self.connection.max_outbound_frame_size)
            if count == 0:
                self.connection.receive_data(self.socket.recv(65536))
            else:
                self.connection.send_data(stream, body[:count])
                body = body[count:]
            self.flush()
        self.connection.end_stream(stream)
        self.flush()


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def get(stream):
    """A GET of /, in fields that are in HPACK's table but for one."""
    return frame(1, 5, stream, bytes([0x82, 0x86, 0x84, 0x01, 1]) + b"a")


def goaway(flood):
    """The code that a connection ends with after this."""
    peer = socket.create_connection(ADDRESS, timeout=PATIENCE)
    came = b""
    try:
        peer.sendall(PREFACE + frame(4) + flood)
    except OSError:
        pass  # it need not take all of it
    try:
        while bytes := peer.recv(65536):
            came += bytes
    except ConnectionResetError:
        pass
    code = None
    while len(came) >= 9:
        length = int.from_bytes(came[:3], "big")
        if came[3] == 7:
            code = int.from_bytes(came[13:17], "big")
        came = came[9 + length :]
    return code


# --- What is right ---------------------------------------------------------------------------------------

peer = Peer()
[answer] = peer.answers(peer.ask(path="/a?b", fields=[("cookie", "a=1"), ("cookie", "b=2")]))
check(answer[0] == 200, answer)
for part in [b'"version":"Http2"', b'"path":"/a","query":"b"', b'["host","a.example"]', b'["cookie","a=1; b=2"]']:
    check(part in answer[1], (part, answer))

streams = [peer.ask(path=f"/{number}") for number in range(100)]
for number, answer in enumerate(peer.answers(*streams)):
    check(b'"path":"/%d"' % number in answer[1], answer)

body = bytes(range(256)) * 3000
stream = peer.ask("POST", "/?raw", end=False)
peer.send(stream, body)
[answer] = peer.answers(stream)
check(answer[1] == body, "a body came back as another")

[answer] = peer.answers(peer.ask("HEAD"))
check(answer[:2] == [200, b""], answer)

stream = peer.ask("POST", "/", end=False)
peer.connection.send_data(stream, b"ahoy")
peer.connection.send_headers(stream, [("checksum", "7")], end_stream=True)
peer.flush()
[answer] = peer.answers(stream)
check(b'"trailers":[["checksum","7"]]' in answer[1], answer)

stream = peer.ask("POST", "/", end=False)
peer.connection.reset_stream(stream)
peer.flush()
[answer] = peer.answers(peer.ask())
check(answer[0] == 200, "others go on when one is taken back")

# A window that opens a byte at a time.
narrow = Peer()
narrow.connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1})
narrow.flush()
[answer] = narrow.answers(narrow.ask("POST", "/?raw", fields=[("content-length", "0")]))
check(answer[0] == 200, answer)
narrow.connection.ping(b"01234567")
narrow.flush()

# --- What is wrong ---------------------------------------------------------------------------------------

cancel = struct.pack(">I", 8)
floods = {
    "rapid reset": b"".join(get(n) + frame(3, 0, n, cancel) for n in range(1, 20001, 2)),
    "SETTINGS": frame(4) * 20000,
    "PING": frame(6, 0, 0, b"01234567") * 20000,
    "PRIORITY": frame(2, 0, 1, b"\0\0\0\0\1") * 20000,
    "WINDOW_UPDATE": frame(8, 0, 0, b"\0\0\0\1") * 20000,
    "CONTINUATION": frame(1, 1, 1, b"\x82") + frame(9, 0, 1, b"\0\1x\1y" * 3000) * 500,
    "empty CONTINUATION": frame(1, 1, 1, b"\x82") + frame(9, 0, 1) * 20000,
    "empty DATA": frame(1, 4, 1, get(1)[9:]) + frame(0, 0, 1) * 20000,
    "unknown frames": frame(0xBA) * 20000,
}
for name, flood in floods.items():
    check(goaway(flood) == ENHANCE_YOUR_CALM, name)

nonsense = {
    "a PING of seven bytes": frame(6, 0, 0, b"1234567"),
    "DATA on no stream": frame(0, 0, 0, b"x"),
    "DATA before HEADERS": frame(0, 0, 1, b"x"),
    "a WINDOW_UPDATE of nothing": frame(8, 0, 0, b"\0\0\0\0"),
    "a frame above the limit": frame(0, 0, 1, b"x" * 20000),
    "HPACK that is none": frame(1, 4, 1, b"\xff" * 20),
    "a CONTINUATION of nothing": frame(9, 4, 1, b"\x82"),
    "SETTINGS of five bytes": frame(4, 0, 0, b"12345"),
    "a push by the client": frame(5, 4, 1, b"\0\0\0\2\x82"),
}
for name, bytes_ in nonsense.items():
    check(goaway(bytes_) not in (None, 0), name)

[answer] = peer.answers(peer.ask())
check(answer[0] == 200, "whoever behaves is served as before")
print(f"{checks} checks by h2 {h2.__version__}: requests, bodies, windows, floods, nonsense")
