"""howdah in front of PHP-FPM, over a unix socket as nginx in nginx_fpm.py, and over TCP."""

from lib.fpm import Fpm
from lib.howdah import Howdah
from lib.ports import free_port


class HowdahFastCgi(Howdah):
    name = "howdah-fastcgi"

    def __init__(self, run_dir, stack, sites, php, processes, environment, cores=None):
        self.listen = self._address(run_dir)
        pool = f"pm = static\npm.max_children = {processes}"
        self.fpm = Fpm(run_dir, stack, php, environment, pool, self.listen, cores, f"{self.name}-fpm")
        super().__init__(run_dir, stack, sites, php, processes, environment, cores)
        self.roots.append(self.fpm.process.pid)
        self.logs.append(self.fpm.log)

    def php_workers(self):
        return self.fpm.workers()

    def _address(self, run_dir):
        return f"{run_dir}/{self.name}.fpm"

    def _config(self, sites, php, processes, environment):
        config = super()._config(sites, php, processes, environment)
        php_application = config["applications"]["bench"]
        config["applications"]["bench"] = {
            "type": "fastcgi",
            "address": f"unix:{self.listen}" if self.listen.startswith("/") else self.listen,
            "targets": php_application["targets"],
            "connections": processes,
        }
        if php.user:
            config["settings"] = {"user": php.user}
        return config


class HowdahFastCgiTcp(HowdahFastCgi):
    name = "howdah-fastcgi-tcp"

    def _address(self, run_dir):
        return f"127.0.0.1:{free_port()}"
