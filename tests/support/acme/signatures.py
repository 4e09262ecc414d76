"""The signatures of ACME's requests: JWS with ES256, and with HS256 for external accounts.

Python has no elliptic curves, and an openssl process for each request would take longer than the test.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def thumbprint(key: dict) -> str:
    """RFC 7638."""
    members = {name: key[name] for name in ("crv", "kty", "x", "y")}
    return encode(hashlib.sha256(json.dumps(members, sort_keys=True, separators=(",", ":")).encode()).digest())


def is_valid(jws: dict, key: dict) -> bool:
    """Whether the request is signed with this key (ES256)."""
    signature = decode(jws["signature"])
    if len(signature) != 64:
        return False
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    if not (0 < r < N and 0 < s < N):
        return False
    digest = int.from_bytes(hashlib.sha256(f"{jws['protected']}.{jws['payload']}".encode()).digest(), "big")
    public = tuple(int.from_bytes(decode(key[name]), "big") for name in ("x", "y"))
    inverse = pow(s, -1, N)
    sum_ = _add(_times(G, digest * inverse % N), _times(public, r * inverse % N))
    return sum_ is not None and sum_[0] % N == r


def is_valid_hmac(jws: dict, key: bytes) -> bool:
    """Whether the binding is signed with this key (HS256)."""
    expected = hmac.new(key, f"{jws['protected']}.{jws['payload']}".encode(), hashlib.sha256).digest()
    return hmac.compare_digest(expected, decode(jws["signature"]))


def _add(a, b):
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % P == 0:
            return None
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, P) % P
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, P) % P
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def _times(point, factor: int):
    result = None
    while factor:
        if factor & 1:
            result = _add(result, point)
        point = _add(point, point)
        factor >>= 1
    return result
