"""A strict peer: every answer of examples/http_echo, to good requests and bad ones, is read by h11.

    /usr/bin/python3 xtask/judges/strict_peer.py 127.0.0.1 8080

Needs Debian's python3-h11. Each request is sent whole, byte by byte, and cut at random (the seed is told). Good
ones are read by h11's server side, too: what it understands must be what the echo says that it was sent. Prints
one line for each mistake, and how many answers were read; ends with 1 if there was a mistake.
"""

import json
import random
import socket
import sys

import h11

PATIENCE = 60  # seconds; decides nothing, ends what hangs

# What a client may send: name, bytes.
GOOD = [
    ("get", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("query", b"GET /a/b%20c?d=e&f HTTP/1.1\r\nHost: a:80\r\nAccept: */*\r\n\r\n"),
    ("empty line first", b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("head", b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("options", b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("other method", b"BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("absolute form", b"GET http://b/c HTTP/1.1\r\nHost: b\r\n\r\n"),
    ("length", b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nahoy"),
    ("length of nothing", b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"),
    ("chunks", b"PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
               b"4\r\nahoy\r\n00A\r\n0123456789\r\n0\r\n\r\n"),
    ("chunk extensions", b"PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
                         b"2;a=b\r\nhi\r\n0;z\r\n\r\n"),
    ("trailers", b"PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                 b"2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n"),
    ("many fields", b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"x-%d: %d\r\n" % (i, i) for i in range(60)) + b"\r\n"),
    ("spaces around a value", b"GET / HTTP/1.1\r\nHost:a\r\nX:  \t y z \t\r\n\r\n"),
    ("empty value", b"GET / HTTP/1.1\r\nHost: a\r\nX:\r\nY: \r\n\r\n"),
    ("not ASCII in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: \xc3\xa4\xff\r\n\r\n"),
    ("close", b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
    ("1.0", b"GET /old HTTP/1.0\r\n\r\n"),
    ("1.0 with a body", b"POST /old HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi"),
    ("1.0, keep-alive", b"GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    ("unknown upgrade", b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: tea\r\n\r\n"),
]

# What no client may send: name, bytes, the statuses that answer it. All of them close.
BAD = [
    ("no host", b"GET / HTTP/1.1\r\n\r\n", {400}),
    ("two hosts", b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", {400}),
    ("host with a path", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", {400}),
    ("host with a user", b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", {400}),
    ("bad port", b"GET / HTTP/1.1\r\nHost: a:x\r\n\r\n", {400}),
    ("length and chunks", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    ("two lengths", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", {400}),
    ("the same length twice", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", {400}),
    ("a list of lengths", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc", {400}),
    ("length with a sign", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc", {400}),
    ("length in hex", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\nabc", {400}),
    ("length too long", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", {400, 413}),
    ("unknown coding", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", {400, 501}),
    ("chunked twice", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    ("chunked not last", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", {400, 501}),
    ("xchunked", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", {400, 501}),
    ("chunks in 1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    ("chunk without a size", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\nabc\r\n0\r\n\r\n", {400}),
    ("chunk size in 0x", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", {400}),
    ("chunk size and a space", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n", {400}),
    ("huge chunk", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", {400, 413}),
    ("chunk longer than it says", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", {400}),
    ("bare LF after a chunk size", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", {400}),
    ("length in the trailers", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 3\r\n\r\n", {400}),
    ("bare LF", b"GET / HTTP/1.1\nHost: a\n\n", {400}),
    ("bare LF in the header", b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", {400}),
    ("bare CR in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\n\r\n", {400}),
    ("NUL in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: y\0z\r\n\r\n", {400}),
    ("folded line", b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n", {400}),
    ("space before the colon", b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", {400}),
    ("empty name", b"GET / HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n", {400}),
    ("no colon", b"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", {400}),
    ("two spaces", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    ("tab", b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    ("small letters", b"GET / http/1.1\r\nHost: a\r\n\r\n", {400, 505}),
    ("version 1.10", b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", {400, 505}),
    ("version 2.0", b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", {505}),
    ("no version", b"GET /\r\n\r\n", {400}),
    ("no target", b"GET HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    ("fragment", b"GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    ("target not ASCII", b"GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    ("star for GET", b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    ("authority for GET", b"GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    ("method is no token", b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    ("long method", b"G" * 9000 + b" / HTTP/1.1\r\nHost: a\r\n\r\n", {400, 501}),
    ("long target", b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", {414}),
    ("large header", b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100000 + b"\r\n\r\n", {431}),
    ("too many fields", b"GET / HTTP/1.1\r\nHost: a\r\n" + b"x: y\r\n" * 1000 + b"\r\n", {431}),
    ("unknown expectation", b"POST / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nContent-Length: 3\r\n\r\nabc", {417}),
    ("connect", b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", {405, 501}),
    ("trace", b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", {405, 501}),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 40 + b"\r\n\r\n", {400}),
]


class Mistake(Exception):
    pass


class Peer:
    """A connection whose answers h11 reads."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.h11 = h11.Connection(our_role=h11.CLIENT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def pretend(self, method):
        """Tells h11 that a request of this method was sent, whatever it really was."""
        headers = [("host", "a")]
        self.h11.send(h11.Request(method=method, target="/", headers=headers))
        self.h11.send(h11.EndOfMessage())

    def send(self, bytes_, cut):
        """Sends it in pieces; a server that has answered already may not take the rest."""
        try:
            for piece in cut(bytes_):
                self.socket.sendall(piece)
        except OSError:
            pass

    def receive(self):
        try:
            self.h11.receive_data(self.socket.recv(65536))
        except ConnectionResetError:
            raise Mistake("the connection was reset")

    def answer(self):
        """The next answer, its body, and its trailers; h11 raises if anything about it is wrong."""
        body, response = b"", None
        while True:
            event = self.h11.next_event()
            if event is h11.NEED_DATA:
                self.receive()
            elif isinstance(event, h11.InformationalResponse):
                if event.status_code != 100:
                    raise Mistake(f"an answer of {event.status_code}")
            elif isinstance(event, h11.Response):
                response = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return response, body
            else:
                raise Mistake(f"no answer, but {event!r}")

    def closes(self):
        """Whether nothing but the end of the connection follows."""
        while True:
            event = self.h11.next_event()
            if event is h11.NEED_DATA:
                self.receive()
            elif event is h11.PAUSED:
                trailing = self.h11.trailing_data
                if trailing[0]:
                    raise Mistake(f"{trailing[0]!r} behind the answer")
                return False
            else:
                return isinstance(event, h11.ConnectionClosed)


def whole(bytes_):
    return [bytes_]


def one_by_one(bytes_):
    # The first 600 bytes: whatever is longer than that is refused for its length.
    return [bytes_[i : i + 1] for i in range(min(600, len(bytes_)))] + [bytes_[600:]]


def at_random(bytes_):
    at, pieces = 0, []
    while at < len(bytes_):
        end = at + random.choice([1, 2, 3, 7, 20, 100, 4000])
        pieces.append(bytes_[at:end])
        at = end
    return pieces


CUTS = [whole, one_by_one, at_random]


def check_date_and_length(response):
    names = [name for name, _ in response.headers]
    for name in (b"date", b"content-length", b"transfer-encoding"):
        if names.count(name) > 1:
            raise Mistake(f"{name} more than once")
    if b"date" not in names:
        raise Mistake("no Date")


def check_bad(address, bytes_, statuses, cut):
    with Peer(address) as peer:
        peer.pretend("GET")
        peer.send(bytes_, cut)
        response, _ = peer.answer()
        check_date_and_length(response)
        if response.status_code not in statuses:
            raise Mistake(f"{response.status_code} and not one of {statuses}")
        if (b"connection", b"close") not in response.headers:
            raise Mistake("it does not say that it closes")
        if not peer.closes():
            raise Mistake("it does not close")


def understood(bytes_):
    """What h11's server side takes it for: as the echo says it."""
    server = h11.Connection(our_role=h11.SERVER)
    server.receive_data(bytes_.removeprefix(b"\r\n"))
    body, trailers, request = b"", [], None
    while True:
        event = server.next_event()
        if isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            trailers = list(event.headers)
            break
        else:
            raise Mistake(f"h11 sees {event!r}")
    keeps = server.their_state is not h11.MUST_CLOSE
    fields = lambda headers: [[n.decode("latin-1"), v.decode("latin-1")] for n, v in headers]
    return {
        "method": request.method.decode(),
        "target": request.target.decode(),
        "headers": fields(request.headers),
        "trailers": fields(trailers),
        "body": body.decode("latin-1"),
    }, keeps


def check_good(address, bytes_, cut):
    expected, keeps = understood(bytes_)
    with Peer(address) as peer:
        peer.pretend(expected["method"])
        peer.send(bytes_, cut)
        response, body = peer.answer()
        check_date_and_length(response)
        if response.status_code != 200:
            raise Mistake(f"{response.status_code}: {body!r}")
        if expected["method"] == "HEAD":
            if body:
                raise Mistake("HEAD has a body")
        else:
            check_echo(json.loads(body), expected)
        closed = peer.h11.their_state is h11.MUST_CLOSE
        if b"HTTP/1.0" not in bytes_ and keeps == closed:
            raise Mistake(f"h11 keeps it: {keeps}; it is closed: {closed}")
        if closed and not peer.closes():
            raise Mistake("it does not close")
        if not closed:
            # It can be used again.
            peer.h11.start_next_cycle()
            peer.pretend("GET")
            peer.send(b"GET /again HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", whole)
            _, body = peer.answer()
            if json.loads(body)["path"] != "/again" or not peer.closes():
                raise Mistake("it cannot be used again")


def check_echo(echo, expected):
    target = echo["path"] + ("" if echo["query"] is None else "?" + echo["query"])
    if not expected["target"].endswith(target):
        raise Mistake(f"target {target!r}, not {expected['target']!r}")
    for field in ("method", "body"):
        if echo[field] != expected[field]:
            raise Mistake(f"{field} {echo[field]!r}, not {expected[field]!r}")
    for field in ("headers", "trailers"):
        ours = [[name.lower(), value] for name, value in echo[field]]
        # h11 writes this one in small letters.
        ours = [[n, v.lower() if n == "transfer-encoding" else v] for n, v in ours]
        if ours != expected[field]:
            raise Mistake(f"{field} {ours!r}, not {expected[field]!r}")


def check_client(address, cut):
    """h11 writes the requests: many on one connection, of every shape."""
    with Peer(address) as peer:
        for turn in range(30):
            if turn:
                peer.h11.start_next_cycle()
            body = bytes(random.randrange(256) for _ in range(random.choice([0, 1, 5, 300, 20000])))
            chunked, expects = turn % 2 == 0, turn % 3 == 0 and body
            framing = ("transfer-encoding", "chunked") if chunked else ("content-length", str(len(body)))
            headers = [("host", "a"), framing, ("x-turn", str(turn))]
            if expects:
                headers.append(("expect", "100-continue"))
            send = peer.h11.send
            peer.send(send(h11.Request(method="POST", target=f"/{turn}", headers=headers)), cut)
            if expects:
                while (event := peer.h11.next_event()) is h11.NEED_DATA:
                    peer.receive()
                if not isinstance(event, h11.InformationalResponse) or event.status_code != 100:
                    raise Mistake(f"not 100, but {event!r}")
            bytes_ = b"".join(send(h11.Data(data=piece)) for piece in at_random(body))
            trailers = [("x-last", "yes")] if chunked else []
            peer.send(bytes_ + send(h11.EndOfMessage(headers=trailers)), cut)
            response, answer = peer.answer()
            check_date_and_length(response)
            echo = json.loads(answer)
            if echo["body"].encode("latin-1") != body or echo["path"] != f"/{turn}":
                raise Mistake(f"turn {turn}: another body or path")
            if [[name.lower(), value] for name, value in echo["trailers"]] != [list(t) for t in trailers]:
                raise Mistake(f"turn {turn}: trailers {echo['trailers']}")


def check_pipeline(address, cut):
    """All good requests that keep the connection, one behind the other; the answers in order."""
    several = [bytes_ for _, bytes_ in GOOD if b"HTTP/1.1" in bytes_ and b"close" not in bytes_]
    with Peer(address) as peer:
        peer.send(b"".join(several), cut)
        for turn, bytes_ in enumerate(several):
            expected, _ = understood(bytes_)
            if turn:
                peer.h11.start_next_cycle()
            peer.pretend(expected["method"])
            _, body = peer.answer()
            if expected["method"] != "HEAD":
                check_echo(json.loads(body), expected)


def main():
    address = (sys.argv[1], int(sys.argv[2]))
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
    random.seed(seed)
    mistakes, checks = [], 0
    for cut in CUTS:
        cases = [(name, lambda b=bytes_, s=statuses: check_bad(address, b, s, cut)) for name, bytes_, statuses in BAD]
        cases += [(name, lambda b=bytes_: check_good(address, b, cut)) for name, bytes_ in GOOD]
        cases += [("h11 as the client", lambda: check_client(address, cut))]
        cases += [("pipelined", lambda: check_pipeline(address, cut))]
        for name, check in cases:
            checks += 1
            try:
                check()
            except (Mistake, h11.RemoteProtocolError, OSError, ValueError) as mistake:
                mistakes.append(f"{name}, sent {cut.__name__}: {type(mistake).__name__}: {mistake}")
    for mistake in mistakes:
        print(mistake)
    print(f"{checks - len(mistakes)} of {checks} checks by h11 {h11.__version__}, seed {seed}")
    sys.exit(1 if mistakes else 0)


if __name__ == "__main__":
    main()
