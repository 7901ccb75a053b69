"""The cases of the Autobahn test suite, each by its number, sent to the WebSocket echo of examples/http_echo.

    /usr/bin/python3 xtask/judges/autobahn.py 127.0.0.1 8080 --rounds 1000

Autobahn itself wants Python 2. Here wsproto reads every byte that comes back and compresses what has to be compressed;
what it would refuse to send is written as bytes. Where Autobahn waits a second, this waits for an answer. Each case
prints its number; whatever is wrong with one is told, and the end is 1 unless every case was there and good.
"""

import argparse
import random
import sys

import wsproto
from websocket_peer import Peer
from wsproto.events import BytesMessage, CloseConnection, Pong, TextMessage
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import CloseReason

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
LAST = 0x80  # of the frames of a message
LIMIT = 16 << 20  # of a message of examples/http_echo

# How many cases each group has: those of Autobahn, and in group 9 the two for any size, which it has switched off.
COUNTS = {1: 16, 2: 11, 3: 7, 4: 10, 5: 20, 6: 145, 7: 37, 9: 56, 10: 1, 12: 90, 13: 126}


def frame(first, payload=b""):
    """A frame of a client's: masked."""
    length = len(payload)
    head = bytes([first])
    if length < 126:
        head += bytes([0x80 | length])
    elif length < 1 << 16:
        head += bytes([0x80 | 126]) + length.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + length.to_bytes(8, "big")
    key = random.getrandbits(32).to_bytes(4, "big")
    mask = key * (length // 4) + key[:length % 4]
    return head + key + (int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")).to_bytes(length, "big")


class Frames:
    """Bytes to be sent: as they are, each frame by itself, or in chops of so many bytes."""

    def __init__(self, *frames, chop=None, each=False):
        self.pieces = frames if each else [b"".join(frames)]
        self.chop = chop

    def do(self, peer):
        for piece in self.pieces:
            peer.send(piece, self.chop)


class Echo:
    """A message that must come, whole, and be of the same kind."""

    def __init__(self, data):
        self.data = data

    def do(self, peer):
        message = peer.message()
        assert type(message) is type(self.data), f"{message!r:.100} is no {type(self.data).__name__}"
        assert message == self.data, f"{message!r:.100} ({len(message)}) is not {self.data!r:.100} ({len(self.data)})"


class Answer:
    """A pong that must come next."""

    def __init__(self, payload):
        self.payload = payload

    def do(self, peer):
        event = peer.message()
        assert isinstance(event, Pong) and event.payload == self.payload, f"{event!r:.100} is not that pong"


class Closed:
    """The close that must come next, and be the last."""

    def __init__(self, *codes):
        self.codes = codes

    def do(self, peer):
        code = peer.closed()
        assert code in self.codes, f"closed with {code}, not {self.codes}"


FAILS = Closed(1002)
NOT_UTF8 = Closed(1007)


def close(code=1000, reason=b""):
    return frame(LAST | CLOSE, code.to_bytes(2, "big") + reason)


def text(payload, **how):
    return [Frames(frame(LAST | TEXT, payload), **how), Echo(payload.decode())]


def binary(payload, **how):
    return [Frames(frame(LAST | BINARY, payload), **how), Echo(payload)]


def in_fragments(kind, payload, size):
    """The frames of a message, of so many bytes each."""
    pieces = [payload[at:at + size] for at in range(0, len(payload), size)] or [b""]
    firsts = [kind] + [CONTINUATION] * (len(pieces) - 1)
    firsts[-1] |= LAST
    return [frame(first, piece) for first, piece in zip(firsts, pieces)]


def framing():
    sizes = [(0, None), (125, None), (126, None), (127, None), (128, None), (65535, None), (65536, None), (65536, 997)]
    for at, (size, chop) in enumerate(sizes, 1):
        yield f"1.1.{at}", text(b"*" * size, chop=chop)
    for at, (size, chop) in enumerate(sizes, 1):
        yield f"1.2.{at}", binary(b"\xfe" * size, chop=chop)


def pings():
    odd = bytes([0x00, 0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0x00, 0xff])
    for at, payload in enumerate([b"", b"Hello, world!", odd, b"\xfe" * 125], 1):
        yield f"2.{at}", [Frames(frame(LAST | PING, payload)), Answer(payload)]
    yield "2.5", [Frames(frame(LAST | PING, b"\xfe" * 126)), FAILS]
    yield "2.6", [Frames(frame(LAST | PING, b"\xfe" * 125), chop=1), Answer(b"\xfe" * 125)]
    yield "2.7", [Frames(frame(LAST | PONG))]
    unasked = frame(LAST | PONG, b"unsolicited pong payload")
    yield "2.8", [Frames(unasked)]
    yield "2.9", [Frames(unasked, frame(LAST | PING, b"ping payload")), Answer(b"ping payload")]
    ten = [b"payload-%d" % at for at in range(10)]
    for number, chop in (("2.10", None), ("2.11", 1)):
        frames = [frame(LAST | PING, payload) for payload in ten]
        yield number, [Frames(*frames, chop=chop)] + [Answer(payload) for payload in ten]


def reserved_bits():
    def behind(bits, **how):
        hello, ping = frame(LAST | TEXT, b"Hello"), frame(LAST | PING)
        return [Frames(hello, frame(LAST | bits << 4 | TEXT, b"Hello"), ping, **how), Echo("Hello"), FAILS]

    yield "3.1", [Frames(frame(LAST | 1 << 4 | TEXT, b"small")), FAILS]
    yield "3.2", behind(2)
    yield "3.3", behind(3, each=True)
    yield "3.4", behind(4, chop=1)
    yield "3.5", [Frames(frame(LAST | 5 << 4 | BINARY, bytes([0x00, 0xff, 0xfe]))), FAILS]
    yield "3.6", [Frames(frame(LAST | 6 << 4 | PING, b"Hello")), FAILS]
    yield "3.7", [Frames(frame(LAST | 7 << 4 | CLOSE)), FAILS]


def opcodes():
    for group, first in ((1, 3), (2, 11)):
        hello, ping = frame(LAST | TEXT, b"Hello"), frame(LAST | PING)
        wrong = [frame(LAST | first + at, b"" if at in (0, 2) else b"reserved opcode") for at in range(5)]
        yield f"4.{group}.1", [Frames(wrong[0]), FAILS]
        yield f"4.{group}.2", [Frames(wrong[1]), FAILS]
        yield f"4.{group}.3", [Frames(hello, wrong[2], ping), Echo("Hello"), FAILS]
        yield f"4.{group}.4", [Frames(hello, wrong[3], ping), Echo("Hello"), FAILS]
        yield f"4.{group}.5", [Frames(hello, wrong[4], ping, chop=1), Echo("Hello"), FAILS]


def fragmentation():
    ways = [{}, {"each": True}, {"chop": 1}]
    one, two = frame(TEXT, b"fragment1"), frame(LAST, b"fragment2")
    whole = Echo("fragment1fragment2")
    for number, kind in (("5.1", PING), ("5.2", PONG)):
        yield number, [Frames(frame(kind, b"fragment1"), two), FAILS]
    for number, way in zip(("5.3", "5.4", "5.5"), ways):
        yield number, [Frames(one, two, **way), whole]
    for number, way in zip(("5.6", "5.7", "5.8"), ways):
        yield number, [Frames(one, frame(LAST | PING, b"ping payload"), two, **way), Answer(b"ping payload"), whole]
    hello = frame(LAST | TEXT, b"Hello, world!")
    for first, numbers in ((LAST, ("5.9", "5.10", "5.11")), (0, ("5.12", "5.13", "5.14"))):
        for number, way in zip(numbers, ways):
            yield number, [Frames(frame(first, b"non-continuation payload"), hello, **way), FAILS]
    alone = frame(CONTINUATION, b"fragment3")
    yield "5.15", [Frames(one, two, alone, frame(LAST | TEXT, b"fragment4")), whole, FAILS]
    for number, first in (("5.16", 0), ("5.17", LAST)):
        yield number, [Frames(*[frame(first, b"fragment1"), frame(TEXT, b"fragment2"), frame(LAST, b"fragment3")] * 2),
                       FAILS]
    yield "5.18", [Frames(one, frame(LAST | TEXT, b"fragment2")), FAILS]
    for number, way in (("5.19", {}), ("5.20", {"each": True})):
        # The first ping is answered before the message is whole.
        yield number, [
            Frames(one, frame(CONTINUATION, b"fragment2"), frame(LAST | PING, b"pongme 1!"), **way),
            Answer(b"pongme 1!"),
            Frames(frame(CONTINUATION, b"fragment3"), frame(CONTINUATION, b"fragment4"),
                   frame(LAST | PING, b"pongme 2!"), frame(LAST, b"fragment5"), **way),
            Answer(b"pongme 2!"),
            Echo("".join(f"fragment{at}" for at in range(1, 6))),
        ]


KOSME = "\u03ba\u1f79\u03c3\u03bc\u03b5".encode()  # κόσμε, and its accent is not a Greek one


def utf8():
    yield "6.1.1", text(b"")
    yield "6.1.2", [Frames(frame(TEXT), frame(CONTINUATION), frame(LAST)), Echo("")]
    yield "6.1.3", [Frames(frame(TEXT), frame(CONTINUATION, b"middle"), frame(LAST)), Echo("middle")]
    hello = "Hello-µ@ßöäüàá-UTF-8!!"
    begin, end = hello[:11].encode(), hello[11:].encode()
    yield "6.2.1", text(hello.encode())
    yield "6.2.2", [Frames(frame(TEXT, begin), frame(LAST, end)), Echo(hello)]
    yield "6.2.3", [Frames(*in_fragments(TEXT, hello.encode(), 1)), Echo(hello)]
    yield "6.2.4", [Frames(*in_fragments(TEXT, KOSME, 1)), Echo(KOSME.decode())]
    wrong = KOSME + b"\xed\xa0\x80" + b"edited"
    yield "6.3.1", [Frames(frame(LAST | TEXT, wrong)), NOT_UTF8]
    yield "6.3.2", [Frames(*in_fragments(TEXT, wrong, 1)), NOT_UTF8]
    # What is wrong is in the second part, and seen before the third is sent: the first alone is good.
    for numbers, parts in ((("6.4.1", "6.4.3"), (KOSME, b"\xf4\x90\x80\x80", b"edited")),
                           (("6.4.2", "6.4.4"), (KOSME, b"\xf4\x90", b"\x80\x80edited"))):
        asked = [Frames(frame(LAST | PING)), Answer(b"")]
        yield numbers[0], [Frames(frame(TEXT, parts[0])), *asked, Frames(frame(CONTINUATION, parts[1])), NOT_UTF8]
        whole = frame(LAST | TEXT, b"".join(parts))
        yield numbers[1], [Frames(whole[:-len(parts[1] + parts[2])]),
                           Frames(whole[:-len(parts[2])][-len(parts[1]):]), NOT_UTF8]
    for group, sequences in enumerate(sequences_of_utf8(), 5):
        for at, (valid, payload) in enumerate(sequences, 1):
            steps = text(payload) if valid else [Frames(frame(LAST | TEXT, payload)), NOT_UTF8]
            yield f"6.{group}.{at}", steps


def is_utf8(payload):
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def sequences_of_utf8():
    """6.5 to 6.23, after Markus Kuhn's "UTF-8 decoder capability and stress test": whether it is right, and bytes."""

    def good(*sequences):
        assert all(map(is_utf8, sequences)), sequences
        return [(True, sequence) for sequence in sequences]

    def bad(*sequences):
        assert not any(map(is_utf8, sequences)), sequences
        return [(False, sequence) for sequence in sequences]

    def overlong(byte):  # in two to six bytes
        leads = [0xc0, 0xe0, 0xf0, 0xf8, 0xfc]
        return [bytes([lead]) + b"\x80" * more + byte for more, lead in enumerate(leads)]

    hexes = bytes.fromhex
    missing = [hexes(it) for it in ("c0", "e080", "f08080", "f8808080", "fc80808080",
                                    "df", "efbf", "f7bfbf", "fbbfbfbf", "fdbfbfbfbf")]
    high, low = ["eda080", "edadbf", "edae80", "edafbf"], ["edb080", "edbfbf"]
    yield good(*[f"hello{c}world".encode() for c in "$\u00a2\u20ac\U00024b62"], KOSME)  # 6.5: some text
    yield [(is_utf8(KOSME[:end]), KOSME[:end]) for end in range(1, len(KOSME) + 1)]  # 6.6: all its beginnings
    yield good(*map(hexes, ["00", "c280", "e0a080", "f0908080"]))  # 6.7: the first of each length
    yield bad(*map(hexes, ["f888808080", "fc8480808080"]))  # 6.8: of lengths that there are not
    yield good(*map(hexes, ["7f", "dfbf", "efbfbf", "f48fbfbf"]))  # 6.9: the last of each length
    yield bad(*map(hexes, ["f7bfbfbf", "fbbfbfbfbf", "fdbfbfbfbfbf"]))  # 6.10: of lengths that there are not
    yield good(*map(hexes, ["ed9fbf", "ee8080", "efbfbd", "f48fbfbf"])) + bad(hexes("f4908080"))  # 6.11: other edges
    alternating = [bytes([0x80, 0xbf] * 3)[:count] for count in range(2, 7)]
    yield bad(b"\x80", b"\xbf", *alternating, bytes(range(0x80, 0xbf)))  # 6.12: continuations of nothing
    ranges = [(0xc0, 0xdf), (0xe0, 0xef), (0xf0, 0xf7), (0xf8, 0xfb), (0xfc, 0xfd)]
    yield bad(*[b"".join(bytes([byte, 0x20]) for byte in range(*it)) for it in ranges])  # 6.13: lonely beginnings
    yield bad(*missing)  # 6.14: without the last byte
    yield bad(b"".join(missing))  # 6.15: all of those
    yield bad(b"\xfe", b"\xff", b"\xfe\xfe\xff\xff")  # 6.16: impossible bytes
    yield bad(*overlong(b"\xaf"))  # 6.17: a slash, too long
    yield bad(*map(hexes, ["c1bf", "e09fbf", "f08fbfbf", "f887bfbfbf", "fc83bfbfbfbf"]))  # 6.18: the longest too long
    yield bad(*overlong(b"\x80"))  # 6.19: NUL, too long
    yield bad(*map(hexes, [*high, low[0], "edbe80", low[1]]))  # 6.20: half a surrogate
    yield bad(*[hexes(one + two) for one in high for two in low])  # 6.21: both halves
    planes = [plane << 16 | 0xfffe | last for plane in range(1, 17) for last in (0, 1)]
    yield good(*[chr(c).encode() for c in [0xfffe, 0xffff, *planes]])  # 6.22: those that are no characters
    yield good(*[chr(c).encode() for c in range(0xfff9, 0x10000)])  # 6.23: specials


def closing():
    hello = frame(LAST | TEXT, b"Hello World!")
    yield "7.1.1", [Frames(hello, close()), Echo("Hello World!"), Closed(1000)]
    yield "7.1.2", [Frames(close(), close()), Closed(1000)]
    yield "7.1.3", [Frames(close(), frame(LAST | PING)), Closed(1000)]
    yield "7.1.4", [Frames(close(), hello), Closed(1000)]
    yield "7.1.5", [Frames(frame(TEXT, b"fragment1"), close(), frame(LAST, b"fragment2")), Closed(1000)]
    large = b"BAsd7&jh23" * (256 * 1024 // 10 + 1)
    yield "7.1.6", [Frames(frame(LAST | TEXT, large[:256 << 10]), hello, close(), frame(LAST | PING)),
                    Echo(large[:256 << 10].decode()), Echo("Hello World!"), Closed(1000)]
    yield "7.3.1", [Frames(frame(LAST | CLOSE)), Closed(1005)]
    yield "7.3.2", [Frames(frame(LAST | CLOSE, b"a")), FAILS]
    yield "7.3.3", [Frames(close()), Closed(1000)]
    yield "7.3.4", [Frames(close(1000, b"Hello World!")), Closed(1000)]
    yield "7.3.5", [Frames(close(1000, b"*" * 123)), Closed(1000)]
    yield "7.3.6", [Frames(close(1000, b"*" * 124)), FAILS]
    yield "7.5.1", [Frames(close(1000, KOSME + b"\xed\xa0\x80edited")), NOT_UTF8]
    good = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
    for at, code in enumerate(good, 1):
        yield f"7.7.{at}", [Frames(close(code)), Closed(code)]
    for at, code in enumerate([0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999], 1):
        yield f"7.9.{at}", [Frames(close(code)), FAILS]
    for at, code in enumerate([5000, 65535], 1):
        yield f"7.13.{at}", [Frames(close(code)), FAILS]


def limits(rounds):
    both = ((TEXT, b"*", lambda it: Echo(it.decode())), (BINARY, b"\xfe", Echo))
    for group, (kind, letter, echo) in enumerate(both, 1):
        for at, size in enumerate([64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, LIMIT], 1):
            yield f"9.{group}.{at}", [Frames(frame(LAST | kind, letter * size)), echo(letter * size)]
    for group, (kind, letter, echo) in enumerate(both, 3):
        large = letter * (4 << 20)
        for at in range(9):  # fragments of 64 bytes, 256 bytes … 4 MiB
            yield f"9.{group}.{at + 1}", [Frames(*in_fragments(kind, large, 64 << 2 * at)), echo(large)]
    for group, (kind, letter, echo) in enumerate(both, 5):
        large = letter * (1 << 20)
        for at in range(6):  # chops of 64 bytes, 128 bytes … 2 KiB
            yield f"9.{group}.{at + 1}", [Frames(frame(LAST | kind, large), chop=64 << at), echo(large)]
    for group, (kind, letter, echo) in enumerate(both, 7):
        for at, size in enumerate([0, 16, 64, 256, 1024, 4096], 1):
            again = [Frames(frame(LAST | kind, letter * size)), echo(letter * size)]
            yield f"9.{group}.{at}", again * rounds
    # Of any size: there is a limit here. It is told before such a frame has come, or when fragments are too many.
    yield "9.9.1", [Frames(frame(LAST | TEXT, b"*" * (LIMIT + 1))[:14]), Closed(1009)]
    halves = [frame(BINARY, b"\xfe" * (LIMIT // 2)), frame(CONTINUATION, b"\xfe" * (LIMIT // 2)), frame(LAST, b"!")[:6]]
    yield "9.10.1", [Frames(*halves), Closed(1009)]


def auto_fragments():
    yield "10.1.1", [Frames(*in_fragments(TEXT, b"*" * 65536, 1300)), Echo("*" * 65536)]


class Offers(PerMessageDeflate):
    """permessage-deflate, offered in these words; several offers may be among them."""

    def __init__(self, words, agreed=True):
        super().__init__()
        self.words, self.agreed = words, agreed

    def offer(self):
        return self.words


class Compressed:
    """Messages of one size that wsproto compresses, from this data, and their echoes."""

    def __init__(self, offers, data, size, fragment, rounds):
        self.offers, self.data, self.size, self.fragment = offers, data, size, fragment
        # As many as Autobahn sends of those up to 1 KiB; of larger ones as many as are as long together.
        self.count = max(2, min(rounds, rounds * 1024 // size))

    def do(self, peer):
        assert self.offers.enabled() == self.offers.agreed, f"agreed is {self.offers.enabled()}: {self.offers}"
        event = TextMessage if isinstance(self.data, str) else BytesMessage
        twice, fragment = self.data * 2, self.fragment or self.size
        for round in range(self.count):
            at = round * self.size % len(self.data)
            message = twice[at:at + self.size]
            assert len(message) == self.size, "there is too little data"
            for begin in range(0, self.size, fragment):
                piece, last = message[begin:begin + fragment], begin + fragment >= self.size
                peer.send(peer.ws.send(event(data=piece, message_finished=last)))
            Echo(message).do(peer)
        peer.send(peer.ws.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE)))
        Closed(1000).do(peer)


# Size of messages, and of their fragments before they are compressed.
SIZES = [(size, None) for size in (16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072)]
SIZES += [(size, 256) for size in (8192, 16384, 32768, 65536, 131072)]
SIZES += [(131072, size) for size in (1024, 4096, 32768)]


def kinds_of_data():
    """Prose, a picture, a document that is compressed itself, JSON, HTML: as Autobahn's, but made here."""
    rng = random.Random(1)
    words = "tide boat oar rope harbour the of and coracle willow hide river Faust grau teure Freund Theorie".split()
    prose = " ".join(rng.choice(words) for _ in range(30000))
    picture = bytes((x + y + rng.randrange(8)) % 256 for y in range(380) for x in range(380))
    document = b"".join(b"%d 0 obj <</Length 2000>> stream\n" % at + rng.randbytes(2000) + b"endstream\n"
                        for at in range(70))
    json = ", ".join(f'{{"id": {at}, "name": "{rng.choice(words)}", "ratio": {rng.random():.6f}}}'
                     for at in range(3000))
    html = "".join(f'<tr class="row{at % 2}"><td>{at}</td><td>{rng.choice(words)}</td></tr>\n' for at in range(3000))
    return [prose.encode(), picture, document, f"[{json}]", f"<html><table>{html}</table></html>"]


def compression(rounds, kinds):
    for group, data in enumerate(kinds, 1):
        for at, (size, fragment) in enumerate(SIZES, 1):
            offers = Offers("client_max_window_bits")
            yield f"12.{group}.{at}", [Compressed(offers, data, size, fragment, rounds)]
    # zlib cannot compress with the smallest window, of 8 bits: such an offer is passed over.
    forget = "server_no_context_takeover; client_max_window_bits"
    for group, (words, agreed) in enumerate([
            ("client_max_window_bits", True),
            (forget, True),
            ("server_max_window_bits=8; client_max_window_bits", False),
            ("server_max_window_bits=15; client_max_window_bits", True),
            (f"{forget}; server_max_window_bits=8", False),
            (f"{forget}; server_max_window_bits=15", True),
            (f"{forget}; server_max_window_bits=8, permessage-deflate; {forget}, permessage-deflate", True)], 1):
        for at, (size, fragment) in enumerate(SIZES, 1):
            offers = Offers(words, agreed)
            yield f"13.{group}.{at}", [Compressed(offers, kinds[3], size, fragment, rounds)]


def all_cases(rounds, kinds):
    for group in (framing(), pings(), reserved_bits(), opcodes(), fragmentation(), utf8(), closing(), limits(rounds),
                  auto_fragments(), compression(rounds, kinds)):
        yield from group


def try_case(address, path, steps):
    offers = next((step.offers for step in steps if isinstance(step, Compressed)), None)
    peer = Peer(address, path, offers)
    for step in steps:
        step.do(peer)
    if not isinstance(steps[-1], (Closed, Compressed)):
        peer.send(close())
        Closed(1000).do(peer)
    peer.socket.close()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("host")
    arguments.add_argument("port", type=int)
    arguments.add_argument("--rounds", type=int, default=1000, help="messages in a case that sends many")
    arguments = arguments.parse_args()
    address, kinds = (arguments.host, arguments.port), kinds_of_data()
    failed = []
    # In a coroutine whose messages refer to those before them, and in callbacks whose do not.
    for path in ("/ws?keep", "/ws?callbacks"):
        counts, line = {}, None
        for number, steps in all_cases(arguments.rounds, kinds):
            group = number.rpartition(".")[0]
            print(f"\n{path} {number}" if group != line else f" {number}", end="", flush=True)
            line = group
            first = int(number.partition(".")[0])
            counts[first] = counts.get(first, 0) + 1
            try:
                try_case(address, path, steps)
            except Exception as error:  # whatever it is, it is told
                failed.append(f"{path}: {number}: {type(error).__name__}: {error}")
                print(" FAILED", end="")
        if counts != COUNTS:
            failed.append(f"{path}: there were {counts} cases, not {COUNTS}")
    print()
    for words in failed:
        print(f"FAILED {words}")
    print(f"{2 * sum(COUNTS.values())} cases read by wsproto {wsproto.__version__}, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
