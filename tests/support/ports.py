"""Free TCP ports."""

import random
import socket


def free_port() -> int:
    """A TCP port without a listener, below the range from which the kernel takes ports for clients."""
    while True:
        port = random.randrange(10240, 32000)
        with socket.socket() as v4, socket.socket(socket.AF_INET6) as v6:
            try:
                v4.bind(("0.0.0.0", port))
                v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                v6.bind(("::", port))
            except OSError:
                continue
            return port
