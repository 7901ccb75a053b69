"""Strict peers of the WebSocket echo of examples/http_echo: wsproto, with all that it can compress by, and websockets.

    /usr/bin/python3 xtask/judges/websocket_peer.py 127.0.0.1 8080

Needs Debian's python3-wsproto and python3-websockets. wsproto reads every byte that comes back; then websockets, a
client with a will of its own, talks to the same server. Prints one line for each mistake, and how much was looked at;
ends with 1 if there was a mistake. The cases of the Autobahn suite are in autobahn.py, by the same peer.
"""

import asyncio
import os
import random
import socket
import sys

import websockets
import wsproto
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Request, TextMessage
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import CloseReason

PATIENCE = 600  # seconds; decides nothing, ends what hangs

mistakes = []
looked_at = 0


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
            data = self.socket.recv(1 << 18)
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
                return ("" if isinstance(event, TextMessage) else b"").join(parts)

    def closed(self):
        """The code of the close, which must be the last that comes."""
        event = self.message()
        assert isinstance(event, CloseConnection), f"not closed but {event!r:.100}"
        try:
            assert self.socket.recv(1) == b"", "something follows the close"
        except ConnectionResetError:
            pass
        return int(event.code)


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
