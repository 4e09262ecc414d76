"""nginx with PHP-FPM behind it, as Debian's packages lay it out: a unix socket, a static pool, sendfile, keep-alive."""

import subprocess

from lib import process_tree
from lib.fpm import Fpm
from lib.php_config import executable
from lib.ports import free_port, wait_for_port

# location: Debian's snippets/fastcgi-php.conf, and the fastcgi_pass that sites-available/default shows.
# worker_connections: Debian's 768 would refuse most of 1,500 clients. keepalive_requests: its 1,000 would make the
# load generator reconnect. Everything else that is not named is nginx's default.
NGINX = """
{user}
worker_processes auto;
worker_rlimit_nofile 20000;
pid {run_dir}/nginx.pid;
error_log {run_dir}/nginx-error.log;
daemon off;
events {{ worker_connections 8192; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    types_hash_max_size 2048;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 75s;
    keepalive_requests 100000000;
    access_log off;
    client_body_temp_path {run_dir}/nginx-body;
    proxy_temp_path {run_dir}/nginx-proxy;
    fastcgi_temp_path {run_dir}/nginx-fastcgi;
    uwsgi_temp_path {run_dir}/nginx-uwsgi;
    scgi_temp_path {run_dir}/nginx-scgi;
{servers}
}}
"""

NGINX_SERVER = """
    server {{
        listen 127.0.0.1:{port};
        root {root};
        location / {{ try_files $uri {fallback}; }}
        location ~ \\.php$ {{
            fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
            try_files $fastcgi_script_name =404;
            set $path_info $fastcgi_path_info;
            fastcgi_param PATH_INFO $path_info;
            fastcgi_index index.php;
            include /etc/nginx/fastcgi.conf;
            fastcgi_pass unix:{socket};
        }}
    }}
"""


class Nginx:
    """nginx in front of FastCGI servers: `socket_of(site)` is the path of a site's socket."""

    def __init__(self, name, run_dir, stack, sites, php, socket_of, cores=None):
        self.ports = {site.name: free_port() for site in sites}
        nginx = executable("nginx", "nginx")
        self.version = version(nginx)
        own_dir = run_dir / name
        own_dir.mkdir(mode=0o755, exist_ok=True)
        nginx_conf = own_dir / "nginx.conf"
        nginx_conf.write_text(NGINX.format(
            run_dir=own_dir, user=f"user {php.user};" if php.user else "",
            servers="".join(NGINX_SERVER.format(
                port=self.ports[site.name], root=site.root, socket=socket_of(site),
                fallback=f"/{site.front_controller}$is_args$args" if site.front_controller else "=404")
                for site in sites)))
        self.log = own_dir / "nginx-error.log"
        self.process = process_tree.start(
            [nginx, "-p", own_dir, "-c", nginx_conf, "-e", self.log],
            env=php.environment(), cores=cores, log=self.log)
        stack.callback(process_tree.stop, self.process)
        for port in self.ports.values():
            wait_for_port(port, self.process, self.log)

    def workers(self):
        return [pid for pid in process_tree.tree([self.process.pid]) if pid != self.process.pid]


class NginxFpm:
    name = "nginx-fpm"

    def pool(self, processes):
        return f"pm = static\npm.max_children = {processes}"

    def __init__(self, run_dir, stack, sites, php, processes, environment, cores=None):
        self.fpm = Fpm(run_dir, stack, php, environment, self.pool(processes), f"{run_dir}/fpm.sock", cores)
        self.nginx = Nginx(self.name, run_dir, stack, sites, php, lambda site: f"{run_dir}/fpm.sock", cores)
        self.ports = self.nginx.ports
        self.version = f"{self.nginx.version}, {version(self.fpm.executable)}"
        self.roots = [self.nginx.process.pid, self.fpm.process.pid]
        self.logs = [self.nginx.log, self.fpm.log]

    def front_processes(self):
        """The processes that hold the clients' connections."""
        return self.nginx.workers()

    def php_workers(self):
        return self.fpm.workers()


def version(command):
    """"nginx/1.22.1", "PHP 8.2.33": the first line of `-v` without what follows the version."""
    done = subprocess.run([command, "-v"], capture_output=True, text=True)
    line = (done.stdout + done.stderr).splitlines()[0]
    return line.removeprefix("nginx version: ").partition(" (")[0]
