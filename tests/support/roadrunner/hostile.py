"""A hostile worker of RoadRunner. It boots as a correct one. Then it answers each request with the bytes of the request's
body, and does what the path orders: /exit, /hang, /close (of its standard output), /more (the bytes again and again),
/flood (the same in large blocks)."""

import os
import struct
import sys
import time
import zlib


def read(length):
    data = b""
    while len(data) < length:
        if not (more := os.read(0, length - len(data))):
            sys.exit(0)
        data += more
    return data


def write(data):
    while data:
        data = data[os.write(1, data) :]


def receive():
    head = read(12)
    options = [struct.unpack("<I", read(4))[0] for _ in range((head[0] & 15) - 3)]
    payload = read(struct.unpack("<I", head[2:6])[0])
    return head[1], payload[: sum(options)], payload[sum(options) :]


while True:
    flags, context, body = receive()
    if flags & 1:
        if b"stop" in context + body:
            sys.exit(0)
        payload = b'{"pid":%d}' % os.getpid()
        start = struct.pack("<BBI", 0x13, 1, len(payload))
        write(start + struct.pack("<I", zlib.crc32(start)) + b"\0\0" + payload)
        if os.environ.get("READS_NOTHING"):
            time.sleep(1000)
        continue
    write(body)
    if b"/exit" in context:
        os._exit(0)
    if b"/hang" in context:
        time.sleep(1000)
    if b"/close" in context:
        os.close(1)
        time.sleep(1000)
    while b"/more" in context:
        write(body)
    block = body * (1 + 1_000_000 // max(1, len(body)))
    while b"/flood" in context:
        write(block)
