"""A strict peer of the WebSocket echo of examples/http_echo: wsproto reads every byte of it, and so does websockets.

    /usr/bin/python3 xtask/judges/websocket_peer.py 127.0.0.1 8080

Needs Debian's python3-wsproto and python3-websockets. The case groups of the Autobahn suite (framing, pings, reserved
bits, opcodes, fragments, UTF-8, closing, limits, compression) are sent as bytes of our own, with the masks and the
mistakes in them, and what comes back is read by wsproto. Then websockets, a client with a will of its own, talks to the
same server. Prints one line for each mistake, and how much was looked at; ends with 1 if there was a mistake.
"""

import asyncio
import os
import random
import socket
import sys

import websockets
import wsproto
from wsproto.events import (AcceptConnection, BytesMessage, CloseConnection, Ping, Pong, RejectConnection, Request,
                            TextMessage)
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import CloseReason

PATIENCE = 600  # seconds; decides nothing, ends what hangs

mistakes = []
looked_at = 0


def frame(first, payload=b"", masked=True):
    length = len(payload)
    bit = 0x80 if masked else 0
    head = bytes([first])
    if length < 126:
        head += bytes([bit | length])
    elif length < 1 << 16:
        head += bytes([bit | 126]) + length.to_bytes(2, "big")
    else:
        head += bytes([bit | 127]) + length.to_bytes(8, "big")
    if not masked:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


class Peer:
    """A connection to the echo; what comes is read by wsproto, which refuses what no server may send."""

    def __init__(self, address, path, deflate=None):
        self.socket = socket.create_connection(address, PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self.extensions = [deflate] if deflate else []
        self.send(self.ws.send(Request(host="a", target=path, extensions=self.extensions, subprotocols=["echo"])))
        self.waiting = []
        accepted = self.event()
        assert isinstance(accepted, AcceptConnection), accepted
        assert accepted.subprotocol == "echo", accepted

    def send(self, data, step=None):
        for at in range(0, len(data), step or max(len(data), 1)):
            self.socket.sendall(data[at:at + (step or len(data))])

    def event(self):
        while not self.waiting:
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self.ws.receive_data(data)
            self.waiting.extend(self.ws.events())
        return self.waiting.pop(0)

    def message(self):
        """The next message, whole; pongs and closes as they are."""
        parts = []
        while True:
            event = self.event()
            if not isinstance(event, (TextMessage, BytesMessage)):
                return event
            parts.append(event.data)
            if event.message_finished:
                return type(event.data)().join(parts)

    def closed(self):
        """The code of the close, which must be the last that comes."""
        event = self.message()
        assert isinstance(event, CloseConnection), f"not closed but {event!r:.100}"
        try:
            assert self.socket.recv(1) == b"", "something follows the close"
        except ConnectionResetError:
            pass
        return int(event.code)


def case(name, address, path, steps, deflate=None):
    """steps: bytes to be sent, or what must come: a message, a Pong, the number of a close."""
    global looked_at
    looked_at += 1
    try:
        peer = Peer(address, path, deflate)
        for step in steps:
            if isinstance(step, tuple):  # in pieces
                peer.send(step[0], step[1])
            elif isinstance(step, (bytes, bytearray)):
                peer.send(step)
            elif isinstance(step, int):
                code = peer.closed()
                assert code == step, f"closed with {code}, not {step}"
            elif isinstance(step, Pong):
                event = peer.message()
                assert isinstance(event, Pong) and event.payload == step.payload, f"{event!r:.100}"
            else:
                message = peer.message()
                assert message == step.data, f"{message!r:.100} is not {step.data!r:.100}"
        peer.socket.close()
    except Exception as error:  # whatever it is, it is told
        mistakes.append(f"{path}: {name}: {type(error).__name__}: {error}")


class Said:
    def __init__(self, data):
        self.data = data


def all_cases(address, path):
    for size in (0, 125, 126, 127, 128, 65535, 65536):
        text = "*" * size
        case(f"1.1 text of {size}", address, path, [frame(0x81, text.encode()), Said(text), frame(0x88), 1005])
        case(f"1.2 bytes of {size}", address, path, [frame(0x82, b"\xfe" * size), Said(b"\xfe" * size)])
    case("1.1.8 chopped", address, path, [(frame(0x81, b"*" * 65536), 997), Said("*" * 65536)])
    for payload in (b"", b"Hello, world!", b"\x00\xff\xfe", b"\xfe" * 125):
        case("2.1 ping", address, path, [frame(0x89, payload), Pong(payload)])
        case("2.6 chopped ping", address, path, [(frame(0x89, payload), 1), Pong(payload)])
        case("2.7 unasked pong", address, path, [frame(0x8a, payload), frame(0x89, b"x"), Pong(b"x")])
    case("2.5 long ping", address, path, [frame(0x89, b"\xfe" * 126), 1002])
    pings = b"".join(frame(0x89, b"payload-%d" % n) for n in range(10))
    case("2.10 ten pings", address, path, [pings] + [Pong(b"payload-%d" % n) for n in range(10)])
    for bits in range(1, 8):
        for opcode in (1, 2, 8, 9):
            case("3 reserved bits", address, path, [frame(0x80 | bits << 4 | opcode), 1002])
    for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        good = frame(0x81, b"Hello")
        case("4 opcodes", address, path, [good, Said("Hello"), frame(0x80 | opcode, b"x"), 1002])
    for control in (8, 9, 10):
        case("5.1 fragmented control", address, path, [frame(control, b"a"), 1002])
    parts = frame(0x01, b"a") + frame(0x89, b"!") + frame(0x00, b"b") + frame(0x80, b"c")
    case("5.6 ping between fragments", address, path, [(parts, 1), Pong(b"!"), Said("abc")])
    case("5.9 continuation of nothing", address, path, [frame(0x80, b"x"), 1002])
    case("5.18 message in a message", address, path, [frame(0x01, b"a"), frame(0x81, b"b"), 1002])
    case("5 unmasked", address, path, [frame(0x81, b"a", masked=False), 1002])
    valid = "Hello-µ@ßöäüàá-UTF-8!! κόσμε \U0010ffff \ufffe \u0000"
    case("6.2 text", address, path, [frame(0x81, valid.encode()), Said(valid)])
    pieces = b"".join(frame(1 if at == 0 else 0, bytes([byte])) for at, byte in enumerate(valid.encode()))
    case("6.2 text by bytes", address, path, [pieces + frame(0x80), Said(valid)])
    for wrong in (b"\xce\xba\xe1\xbd\xb9\xcf\x83\xed\xa0\x80edited", b"\xff", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xce"):
        case("6.3 not UTF-8", address, path, [frame(0x81, wrong), 1007])
    case("6.4 at once", address, path, [frame(0x01, b"\xce\xba\xf4\x90"), 1007])
    for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999):
        case("7.7 codes", address, path, [frame(0x88, code.to_bytes(2, "big") + b"bye"), code])
    for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535):
        case("7.9 codes", address, path, [frame(0x88, code.to_bytes(2, "big")), 1002])
    case("7.3.2 half a code", address, path, [frame(0x88, b"\x03"), 1002])
    case("7.5 reason", address, path, [frame(0x88, b"\x03\xe8\xed\xa0\x80"), 1007])
    both = frame(0x81, b"Hello") + frame(0x88, b"\x03\xe8") + frame(0x89)
    case("7.1 nothing behind a close", address, path, [both, Said("Hello"), 1000])
    large = b"x" * (4 << 20)
    case("9.1 large", address, path, [frame(0x82, large), Said(large)])
    small = b"".join(frame(2 if at == 0 else 0, b"y" * 64) for at in range(1024))
    case("9.3 many fragments", address, path, [small + frame(0x80), Said(b"y" * 65536)])
    case("9 too large", address, path, [b"\x82\xff" + (17 << 20).to_bytes(8, "big") + b"abcd", 1009])


def compressed(address, path):
    """12 and 13: wsproto compresses, with every set of parameters it knows."""
    global looked_at
    rng = random.Random(1)
    words = ["tide", "boat", "oar", "rope", "harbour", "{\"a\": 1}"]
    for own in (True, False):
        for theirs in (True, False):
            for bits in (9, 12, 15):
                looked_at += 1
                deflate = PerMessageDeflate(client_no_context_takeover=own, server_no_context_takeover=theirs,
                                            server_max_window_bits=bits)
                try:
                    peer = Peer(address, path, deflate)
                    assert deflate.enabled(), "it was not agreed on"
                    for size in (0, 1, 10, 100, 3000):
                        for _ in range(2):
                            text = " ".join(rng.choice(words) for _ in range(size))
                            peer.send(peer.ws.send(TextMessage(data=text)))
                            assert peer.message() == text, f"another text of {size} words"
                            noise = rng.randbytes(size * 4)
                            peer.send(peer.ws.send(BytesMessage(data=noise)))
                            assert peer.message() == noise, f"other bytes, {size * 4} of them"
                    peer.send(peer.ws.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE)))
                    assert peer.closed() == 1000
                except Exception as error:
                    mistakes.append(f"{path}: 12, 13: {own} {theirs} {bits}: {type(error).__name__}: {error}")


async def by_websockets(address, path):
    global looked_at
    for compression in ("deflate", None):
        looked_at += 1
        uri = f"ws://{address[0]}:{address[1]}{path}"
        try:
            async with websockets.connect(uri, compression=compression, max_size=None, subprotocols=["echo"],
                                          ping_interval=None) as ws:
                assert ws.subprotocol == "echo"
                for size in (0, 1, 125, 126, 65535, 65536, 200000 if compression else 3 << 20):
                    text = "µ" * (size // 2)
                    await ws.send(text)
                    assert await ws.recv() == text, size
                    await ws.send([text, text])  # in fragments
                    assert await ws.recv() == text + text, size
                    await ws.send(os.urandom(size))
                    assert len(await ws.recv()) == size
                for _ in range(3):
                    await (await ws.ping())
            assert (ws.close_code, ws.close_reason) == (1000, ""), ws.close_code
        except Exception as error:
            mistakes.append(f"{path}: websockets, {compression}: {type(error).__name__}: {error}")


def main():
    address = (sys.argv[1], int(sys.argv[2]))
    for path in ("/ws", "/ws?callbacks"):
        all_cases(address, path)
        for more in ("", "keep"):
            whole = path + ("&" if "?" in path else "?") + more if more else path
            compressed(address, whole)
            asyncio.run(asyncio.wait_for(by_websockets(address, whole), PATIENCE))
    for mistake in mistakes:
        print(mistake)
    print(f"{looked_at} connections read by wsproto {wsproto.__version__} and websockets {websockets.__version__}, "
          f"{len(mistakes)} mistakes")
    sys.exit(1 if mistakes else 0)


if __name__ == "__main__":
    main()
