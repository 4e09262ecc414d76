"""A hostile worker of RoadRunner. It boots as a correct one. Then it answers each request with the bytes of the request's
body, and does what the path orders: /exit, /hang, /close (of its standard output, or connection), /halves (with a pause between them), /more (the bytes again
and again), /flood (the same in large blocks), /attach (a byte with a descriptor before the bytes, if the kernel lets it)."""

import array
import contextlib
import os
import socket
import struct
import sys
import time
import zlib


IN, OUT = 0, 1
relay, _, address = os.environ["RR_RELAY"].partition("://")
if relay != "pipes":
    connection = socket.socket(socket.AF_UNIX if relay == "unix" else socket.AF_INET)
    connection.connect(address if relay == "unix" else ("127.0.0.1", int(address.rpartition(":")[2])))
    IN = OUT = connection.fileno()


def read(length):
    data = b""
    while len(data) < length:
        if not (more := os.read(IN, length - len(data))):
            sys.exit(0)
        data += more
    return data


def write(data):
    while data:
        data = data[os.write(OUT, data) :]


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
    if b"/attach" in context:
        with contextlib.suppress(PermissionError):
            connection.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [2]))])
    if b"/halves" in context:
        write(body[: len(body) // 2])
        time.sleep(0.2)
        body = body[len(body) // 2 :]
    write(body)
    if b"/exit" in context:
        os._exit(0)
    if b"/hang" in context:
        time.sleep(1000)
    if b"/close" in context:
        os.close(OUT)
        time.sleep(1000)
    while b"/more" in context:
        write(body)
    block = body * (1 + 1_000_000 // max(1, len(body)))
    while b"/flood" in context:
        write(block)
