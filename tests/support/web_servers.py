"""nginx, Apache and HAProxy of Debian in front of a FastCGI server: each with the configuration that its users write."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from support.http.client import Connection, Response
from support.machine import free_port
from support.waiting import wait_for


class WebServerProcess:
    """A web server on a free port. `address`: that of the FastCGI server, as in howdah's configuration.

    `options` are lines for the place in which the scripts are passed on.
    """

    def __init__(self, root, address: str, options: str = "", **more):
        self.root, self.address, self.options, self.more = Path(root), address, options, more
        self.directory = more.get("directory") or Path(tempfile.mkdtemp(prefix="howdah-front-"))
        self.directory.chmod(0o755)
        self.port = more.get("port") or free_port()
        self.process: subprocess.Popen | None = None

    def start(self):
        (self.directory / "conf").write_text(self.configuration())
        with open(self.directory / "output", "wb") as output:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.command()],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        wait_for(lambda: self.process.poll() is not None or self.accepts(), f"{type(self).__name__} to accept")
        assert self.process.poll() is None, self.output()
        return self

    def accepts(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        return False

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(10)
        shutil.rmtree(self.directory, ignore_errors=True)

    def output(self) -> str:
        logs = [self.directory / "output", *self.directory.glob("*.log")]
        return "\n".join(log.read_text(errors="replace") for log in logs if log.exists())

    def connect(self, timeout: float = 30) -> Connection:
        return Connection(("127.0.0.1", self.port), timeout)

    def request(self, method: str, target: str, headers=(), body=None) -> Response:
        with self.connect() as connection:
            return connection.request(method, target, headers, body)

    def get(self, target: str, headers=()) -> Response:
        return self.request("GET", target, headers)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_) -> None:
        self.stop()


class Nginx(WebServerProcess):
    """`options`: lines of `location ~ \\.php`. `more`: `locations`, lines of the server; `keep_alive`, a number."""

    def command(self):
        return ["nginx", "-p", self.directory, "-c", self.directory / "conf", "-e", self.directory / "error.log"]

    def configuration(self) -> str:
        front = self.more.get("front_controller", "=404")
        return f"""
daemon off;
{"user www-data;" if os.geteuid() == 0 else ""}
worker_processes 1;
worker_rlimit_nofile 20000;
pid {self.directory}/pid;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_max_body_size 0;
    client_body_temp_path {self.directory}/body;
    proxy_temp_path {self.directory}/proxy;
    fastcgi_temp_path {self.directory}/fastcgi;
    uwsgi_temp_path {self.directory}/uwsgi;
    scgi_temp_path {self.directory}/scgi;
    upstream howdah {{ server {self.address}; keepalive {self.more.get("keep_alive", 1)}; }}
    server {{
        listen 127.0.0.1:{self.port} backlog=4096;
        root {self.root};
        index index.php;
        {self.more.get("locations", "")}
        location / {{ try_files $uri $uri/ {front}; }}
        location ~ \\.php(/|$) {{
            fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
            include /etc/nginx/fastcgi.conf;
            fastcgi_param PATH_INFO $fastcgi_path_info;
            {"fastcgi_keep_conn on;" if "keep_alive" in self.more else ""}
            {self.options}
            fastcgi_pass {"howdah" if "keep_alive" in self.more else self.address};
        }}
    }}
}}
"""


class Apache(WebServerProcess):
    """mod_proxy_fcgi. `more`: `rules`, lines in place of those that pass scripts on; `server_options`, lines for the server."""

    def command(self):
        return ["apache2", "-D", "FOREGROUND", "-f", self.directory / "conf"]

    def configuration(self) -> str:
        modules = "mpm_event authz_core proxy proxy_fcgi rewrite dir mime alias"
        load = "\n".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in modules.split())
        if self.address.startswith("unix:"):
            handler = f"proxy:{self.address}|fcgi://localhost"
        else:
            handler = f"proxy:fcgi://{self.address}"
        rules = self.more.get("rules", '<FilesMatch "\\.php$">\nSetHandler "{handler}"\n</FilesMatch>')
        return f"""
ServerRoot {self.directory}
ServerName shop.example
PidFile {self.directory}/pid
ErrorLog {self.directory}/error.log
Listen 127.0.0.1:{self.port}
{load}
{"User www-data" if os.geteuid() == 0 else ""}
{"Group www-data" if os.geteuid() == 0 else ""}
TypesConfig /dev/null
DocumentRoot {self.root}
DirectoryIndex index.php
LimitRequestBody 0
{self.more.get("server_options", "")}
<Directory {self.root}>
    Require all granted
    AllowOverride None
    {self.options}
</Directory>
{rules.replace("{handler}", handler).replace("{address}", self.address)}
"""


class HaProxy(WebServerProcess):
    """`fcgi-app`: HAProxy sends no files."""

    def command(self):
        return ["haproxy", "-db", "-f", self.directory / "conf"]

    def configuration(self) -> str:
        address = self.address.replace("unix:", "unix@")
        return f"""
global
    maxconn 4000
defaults
    mode http
    timeout connect 10s
    timeout client 60s
    timeout server 60s
frontend clients
    bind 127.0.0.1:{self.port}
    default_backend php
backend php
    use-fcgi-app php
    {self.options}
    server howdah {address} proto fcgi
fcgi-app php
    docroot {self.root}
    index index.php
    path-info ^(/.+?\\.php)(/.*)?$
    option get-values
    {"no option keep-conn" if self.more.get("closes") else "option keep-conn"}
"""
