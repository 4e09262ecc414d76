"""nginx as in nginx_fpm.py, with howdah in the place of PHP-FPM: a FastCGI listener on a Unix socket."""

from lib.howdah import Howdah
from lib.nginx_fpm import Nginx


class NginxHowdah(Howdah):
    name = "nginx-howdah"

    def __init__(self, run_dir, stack, sites, php, processes, environment, cores=None):
        self.run_dir = run_dir
        super().__init__(run_dir, stack, sites, php, processes, environment, cores)
        self.nginx = Nginx(self.name, run_dir, stack, sites, php, self._socket, cores)
        self.ports = self.nginx.ports
        self.version = f"{self.nginx.version}, {self.version}"
        self.roots.append(self.nginx.process.pid)
        self.logs.append(self.nginx.log)

    def front_processes(self):
        return [*self.nginx.workers(), *super().front_processes()]

    def _socket(self, site):
        return f"{self.run_dir}/{self.name}-{site.name}"

    def _config(self, sites, php, processes, environment):
        config = super()._config(sites, php, processes, environment)
        # nginx sends the files.
        config["listeners"] |= {
            f"unix:{self._socket(site)}": {
                "pass": f"applications/bench/{site.name}", "protocol": "fastcgi", "socket": {"mode": "0666"},
            }
            for site in sites
        }
        return config
