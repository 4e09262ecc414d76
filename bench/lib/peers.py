"""Programs of others that a benchmark runs, and their cores."""

import os
import shutil

from lib import process_tree
from lib.process_tree import BenchError

NGINX = """
worker_processes {workers};
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {http}
}}
"""


def cores_apart():
    """The load generator's core, and the cores of the servers."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        raise BenchError("the load generators and the servers need a core each")
    return first, others


def program(name, package):
    """The path of a program, also from /usr/sbin, which is not on every PATH."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not found:
        raise BenchError(f"{name} is not installed: apt-get install {package}")
    return found


def start_nginx(folder, http, *, workers, cores):
    """Starts nginx in this folder, with these directives of its `http` block."""
    configuration, log = folder / "nginx.conf", folder / "nginx.log"
    configuration.write_text(NGINX.format(folder=folder, workers=workers, http=http))
    command = [program("nginx", "nginx-light"), "-p", folder, "-c", configuration, "-e", log]
    return process_tree.start(command, cores=cores, log=log)
