"""PHP-FPM with a static pool, for a web server in front of it."""

from lib import process_tree
from lib.php_config import executable
from lib.ports import wait_for_port, wait_for_socket

CONFIG = """
[global]
error_log = {log}
daemonize = no
[bench]
{user}
listen = {listen}
{pool}
{environment}
"""


class Fpm:
    """Listens at `listen`: a path, or 127.0.0.1 and a port. Its files have names that begin with `name`."""

    def __init__(self, run_dir, stack, php, environment, pool, listen, cores=None, name="fpm"):
        self.executable = executable(f"php-fpm{php.version}", f"php{php.version}-fpm")
        self.log = run_dir / f"{name}.log"
        config = run_dir / f"{name}.conf"
        owner = f"user = {php.user}\ngroup = {php.user}\nlisten.owner = {php.user}" if php.user else ""
        config.write_text(CONFIG.format(
            log=self.log, listen=listen, pool=pool, user=owner,
            environment="\n".join(f"env[{key}] = {value}" for key, value in environment.items())))
        self.process = process_tree.start(
            [self.executable, "-F", "-c", php.ini_file, "-y", config], env=php.environment(), cores=cores, log=self.log)
        stack.callback(process_tree.stop, self.process)
        if str(listen).startswith("/"):
            wait_for_socket(listen, self.process, self.log)
        else:
            wait_for_port(int(listen.rpartition(":")[2]), self.process, self.log)

    def workers(self):
        return [pid for pid in process_tree.tree([self.process.pid]) if pid != self.process.pid]
