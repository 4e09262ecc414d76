"""The cost of a request over TLS in HTTP/1.1, HTTP/2 and HTTP/3, beside nginx's HTTP/2 with PHP-FPM.

The same PHP page and the same static file. `-1` is one request at a time on each connection, `-32` are 32. The cost is the
CPU time of all processes of the server, divided by its right responses. h2load (nghttp2-client) sends HTTP/1.1 and HTTP/2, and a
client on quinn (tests/interop/http3/quinn) HTTP/3, each with one thread on the first core; the server has the others.
The bar, per CPU time: HTTP/2 answers at least as many requests as HTTP/1.1 and as nginx's HTTP/2; HTTP/3 at least half as many as
HTTP/1.1.
"""

import json
import os
import re
import statistics
import subprocess

from lib import process_tree
from lib.lab import BENCH, PHP
from lib.one_howdah import OneHowdah
from lib.options import add_measurement
from lib.peers import cores_apart, program, start_nginx
from lib.ports import free_port, wait_for_port
from lib.process_tree import BenchError
from lib.verdict import print_verdict

PAGES = {"hello": "/hello.php", "10k": "/10k.jpg"}
MANY = 32
PHP_PROCESSES = 4
CLIENT = BENCH.parent / "tests/interop/http3/quinn"
# Relative to the other one. Below it, a difference is noise.
NOISE = 0.95
HTTP3_SHARE = 0.5

NGINX = """
    include /etc/nginx/mime.types;
    sendfile on;
    server {{
        listen 127.0.0.1:{port} ssl http2;
        ssl_certificate {certificate};
        ssl_certificate_key {folder}/key.pem;
        root {pages};
        location ~ \\.php$ {{ include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{folder}/fpm.sock; }}
    }}
"""
FPM = """
[global]
error_log = {folder}/fpm.log
[bench]
{user}listen = {folder}/fpm.sock
listen.mode = 0666
pm = static
pm.max_children = {processes}
"""


def add_options(parser):
    add_measurement(parser, rounds=5, seconds=5, connections=32)


def run(options):
    core, others = cores_apart()
    h2load, load = program("h2load", "nghttp2-client"), client()
    with OneHowdah() as howdah:
        certificate = howdah.folder / "certificate.pem"
        make_certificate(howdah.folder, certificate)
        port = start_howdah(howdah, certificate, others)
        nginx, nginx_roots, stop = start_nginx_with_fpm(howdah.folder, certificate, others)
        try:
            def h2load_on(port, *protocol):
                return lambda page: from_h2load(
                    [h2load, *protocol, "-t1", "-D", options.seconds, f"https://127.0.0.1:{port}{PAGES[page]}"], core)

            def http3(streams):
                connections = max(options.connections // streams, 1)
                return lambda page: from_client(
                    [load, f"127.0.0.1:{port}", PAGES[page], certificate, connections, streams, options.seconds], core)

            one, many = ["-c", options.connections, "-m", 1], ["-c", max(options.connections // MANY, 1), "-m", MANY]
            own = [howdah.process.pid]
            loads = {
                "HTTP/1.1": (own, h2load_on(port, "--h1", *one)),
                "HTTP/2-1": (own, h2load_on(port, *one)),
                f"HTTP/2-{MANY}": (own, h2load_on(port, *many)),
                "HTTP/3-1": (own, http3(1)),
                f"HTTP/3-{MANY}": (own, http3(MANY)),
                "nginx HTTP/1.1": (nginx_roots, h2load_on(nginx, "--h1", *one)),
                "nginx HTTP/2-1": (nginx_roots, h2load_on(nginx, *one)),
                f"nginx HTTP/2-{MANY}": (nginx_roots, h2load_on(nginx, *many)),
            }
            return all([compare(options, page, loads) for page in PAGES])
        finally:
            stop()


def compare(options, page, loads):
    """Measures all loads of a page, in turns."""
    costs, rates = {name: [] for name in loads}, {name: [] for name in loads}
    for number in range(options.rounds + 1):
        for name in sorted(loads, reverse=number % 2 == 1):
            roots, send = loads[name]
            before = process_tree.cpu_seconds(roots)
            right, seconds = send(page)
            # The first round warms up.
            if number > 0:
                costs[name].append((process_tree.cpu_seconds(roots) - before) / right * 1e6)
                rates[name].append(right / seconds)
    for name in loads:
        print(f"{page:8} {name:18} {statistics.median(rates[name]):9,.0f} requests/s {statistics.median(costs[name]):8.1f} µs of CPU a request",
              flush=True)

    def share(name, other):
        """How many requests of `name` cost as much as one of `other`."""
        return statistics.median(theirs / ours for ours, theirs in zip(costs[name], costs[other]))

    bars = [(f"HTTP/2-{streams}", other, NOISE)
            for streams, others in ((1, ("HTTP/1.1", "nginx HTTP/2-1")), (MANY, ("HTTP/1.1", f"nginx HTTP/2-{MANY}"))) for other in others]
    bars += [(f"HTTP/3-{streams}", "HTTP/1.1", HTTP3_SHARE) for streams in (1, MANY)]
    met = []
    for name, other, bar in bars:
        found = share(name, other)
        met.append(print_verdict(found >= bar, f"{page}: {found:.2f} requests of {name} for the CPU of one of {other}; the bar is {bar}"))
    return all(met)


def from_h2load(command, core):
    """The number of right responses, and the seconds that they took."""
    text = process_tree.output(command, cores=[core])
    done = re.search(r"finished in ([\d.]+)(m?s|us)", text)
    counts = re.search(r"(\d+) succeeded, (\d+) failed, (\d+) errored", text)
    # The last responses have a status, and are no success, when the time ends within their bodies.
    statuses = re.search(r"status codes: (\d+) 2xx, 0 3xx, 0 4xx, 0 5xx", text)
    if not done or not counts or not statuses or int(counts[2]) or int(counts[3]) or not 0 < int(counts[1]) <= int(statuses[1]):
        raise BenchError(text)
    return int(counts[1]), float(done[1]) * {"s": 1, "ms": 1e-3, "us": 1e-6}[done[2]]


def from_client(command, core):
    report = json.loads(process_tree.output(command, cores=[core]))
    if report["failed"] or not report["right"]:
        raise BenchError(f"HTTP/3: {report['failed']} requests failed")
    return report["right"], report["seconds"]


def client():
    """The load generator of HTTP/3."""
    target = BENCH.parent / "target/quinn-client"
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", target]
    done = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(done.stderr)
    return target / "release/load"


def make_certificate(folder, certificate):
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", *names,
                    "-keyout", folder / "key.pem", "-out", certificate], check=True, capture_output=True)


def start_howdah(howdah, certificate, cores):
    certificates = howdah.folder / "state/certs"
    certificates.mkdir(parents=True)
    (certificates / "bench").write_text(certificate.read_text() + (howdah.folder / "key.pem").read_text())
    urls = howdah.start(
        {"edge": {"pass": "routes", "tls": {"certificate": "bench"}, "http3": True}}, cores=cores,
        routes=[
            {"match": {"uri": "*.php"}, "action": {"pass": "applications/app"}},
            {"action": {"share": f"{BENCH}/pages$uri"}},
        ],
        applications={"app": {"type": f"php {PHP}", "root": str(BENCH / "pages"), "processes": PHP_PROCESSES}})
    return int(urls["edge"].rpartition(":")[2])


def start_nginx_with_fpm(folder, certificate, cores):
    """nginx and PHP-FPM. Returns the port, their processes, and a function that stops them."""
    port, log = free_port(), folder / "nginx.log"
    user = "user = www-data\ngroup = www-data\n" if os.getuid() == 0 else ""
    http = NGINX.format(folder=folder, port=port, certificate=certificate, pages=BENCH / "pages")
    (folder / "fpm.conf").write_text(FPM.format(folder=folder, user=user, processes=PHP_PROCESSES))
    fpm = process_tree.start([program(f"php-fpm{PHP}", f"php{PHP}-fpm"), "-F", "-y", folder / "fpm.conf"], cores=cores, log=folder / "fpm.log")
    nginx = start_nginx(folder, http, workers="auto", cores=cores)

    def stop():
        process_tree.stop(nginx)
        process_tree.stop(fpm)

    try:
        wait_for_port(port, nginx, log)
    except BaseException:
        stop()
        raise
    return port, [nginx.pid, fpm.pid], stop
