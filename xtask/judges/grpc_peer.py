#!/usr/bin/env python3
"""Debian's grpcio calls an echo: in one message and in many, either way and both ways at once."""

import queue
import sys

import grpc

address = f"{sys.argv[1]}:{sys.argv[2]}"
PATIENCE = 60

with grpc.insecure_channel(address) as channel:
    # Messages are bytes: there is nothing to be generated.
    one = channel.unary_unary("/echo.Echo/One")
    assert one(b"ahoy", timeout=PATIENCE) == b"ahoy"
    large = bytes(range(256)) * 4000
    assert one(large, timeout=PATIENCE) == large
    answer, call = one.with_call(b"", timeout=PATIENCE)
    assert answer == b"" and call.code() == grpc.StatusCode.OK

    many = channel.unary_stream("/echo.Echo/Many")
    assert list(many(b"ahoy", timeout=PATIENCE)) == [b"ahoy"]

    joined = channel.stream_stream("/echo.Echo/Both")
    messages = [b"%d" % number * number for number in range(100)]
    assert list(joined(iter(messages), timeout=PATIENCE)) == messages

    # Each message is sent when the answer to the one before it has come.
    answers = queue.Queue()

    def conversation():
        for number in range(20):
            yield b"%d" % number
            assert answers.get(timeout=PATIENCE) == b"%d" % number

    for answer in joined(conversation(), timeout=PATIENCE):
        answers.put(answer)
    assert answers.empty()

    # Calls do not wait for each other.
    futures = [one.future(b"%d" % number, timeout=PATIENCE) for number in range(200)]
    assert [future.result() for future in futures] == [b"%d" % number for number in range(200)]

print("unary, streaming and bidirectional calls by grpcio", grpc.__version__)
