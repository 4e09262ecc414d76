"""Isolation: an application sees of others and of the machine only what its user and its `isolation` allow."""

import json
import os
import pwd
import shutil
import stat
import subprocess
from functools import cache
from pathlib import Path

import pytest

from support.folders import Folder, readable
from support.http.client import Connection
from support.machine import NOBODY, free_port, needs_root
from support.waiting import wait_for

pytestmark = needs_root

WWW_DATA = pwd.getpwnam("www-data").pw_uid
PATIENT = {"processes": 1, "user": "www-data"}


@cache
def refusal(*command: str) -> str:
    """The error of `unshare` on this kernel or in this container; empty if it succeeds."""
    tried = subprocess.run(command, capture_output=True, text=True)
    return tried.stderr.strip() or f"exit code {tried.returncode}" if tried.returncode else ""


def needs(*flags: str, prefix: tuple[str, ...] = ()):
    reason = refusal(*prefix, "unshare", *flags, "true")
    if reason:
        pytest.skip(f"no `unshare {' '.join(flags)}` here: {reason}")


def app(folder: Folder, isolation: dict | None = None, **options) -> dict:
    return {"type": "php", "root": str(folder.root), **PATIENT, "isolation": isolation or {}, **options}


def here(folder: Folder, code: str) -> str:
    """Makes a script, and returns its path."""
    name = f"page{len(list(folder.root.iterdir()))}.php"
    folder.php(name, code)
    return f"/{name}"


def link(namespace: str) -> str:
    return os.readlink(f"/proc/self/ns/{namespace}")


# --- Users


@pytest.fixture
def pair(folder, run):
    """A server with two applications of different users, and a path of each."""
    secret = folder.scratch / "secret"
    secret.write_text("of shop")
    shutil.chown(secret, "www-data", "www-data")
    secret.chmod(0o600)
    folder.php("pid.php", "echo getmypid();")
    shop = app(folder, environment={"PASSWORD": "of-shop"})
    blog = app(folder, user=NOBODY)
    routes = [
        {"match": {"host": "shop"}, "action": {"pass": "applications/shop"}},
        {"action": {"pass": "applications/blog"}},
    ]
    return run({"applications": {"shop": shop, "blog": blog}, "routes": routes})


def shop_pid(pair) -> int:
    return int(pair.get("/pid.php", {"Host": "shop"}).text)


def test_another_users_application_reads_no_files(pair, folder):
    read = here(folder, "var_dump(@file_get_contents(SCRATCH . '/secret'));")
    assert "of shop" in pair.get(read, {"Host": "shop"}).text
    assert pair.get(read).text == "bool(false)\n"


def test_another_users_application_reads_neither_environment_nor_memory_nor_channel(pair, folder):
    pid = shop_pid(pair)
    prototype = pair.prototype("shop").pid
    code = """$all = [];
        foreach (explode(',', $_GET['pids']) as $pid) {
            foreach (['environ', 'mem', 'maps', 'map_files', 'fd', 'fd/3', 'root/', 'cwd/'] as $name) {
                $path = "/proc/$pid/$name";
                if (is_dir($path) ? @scandir($path) : @file_get_contents($path, false, null, 0, 10)) { $all[] = $path; }
            }
        }
        echo json_encode($all);"""
    assert pair.get(f"{here(folder, code)}?pids={pid},{prototype},{pair.pid},{pair.router().pid}").json() == []


def test_another_users_application_cannot_signal(pair, folder):
    pid = shop_pid(pair)
    names = f"{pid},{pair.prototype('shop').pid},{pair.router().pid},{pair.pid}"
    signal = here(folder, "foreach (explode(',', $_GET['pids']) as $pid) { echo (int) posix_kill((int) $pid, SIGKILL); }")
    assert pair.get(f"{signal}?pids={names}").text == "0000"
    assert shop_pid(pair) == pid


def test_applications_share_no_opcache(pair, folder):
    code = "echo implode(',', array_keys(opcache_get_status()['scripts']));"
    status = here(folder, code)
    folder.php("only-shop.php", "echo 1;")
    assert pair.get("/only-shop.php", {"Host": "shop"}).text == "1"
    assert "only-shop" in pair.get(status, {"Host": "shop"}).text
    assert "only-shop" not in pair.get(status).text


# --- One application attacks another one


ATTACK = r"""$found = [];
    // The pids that the test passes, and in a PID namespace all that the attacker sees. Without one, it would see the processes of
    // the tests beside this one.
    $seen = isset($_GET['seen']) ? array_filter(@scandir('/proc') ?: [], 'is_numeric') : [];
    foreach (array_unique([...explode(',', $_GET['pids']), ...$seen]) as $pid) {
        if ($pid == getmypid() || $pid == posix_getppid()) { continue; }
        foreach (['environ', 'mem', 'maps', 'smaps', 'syscall', 'stack', 'auxv'] as $name) {
            if ((string) @file_get_contents("/proc/$pid/$name", false, null, 0, 10) !== '') { $found[] = $name; }
        }
        foreach (['fd', 'map_files', 'root', 'cwd', 'fdinfo'] as $name) {
            foreach (array_diff(@scandir("/proc/$pid/$name/") ?: [], ['.', '..']) as $entry) { $found[] = $name; }
        }
        // Not for the channel's sake only: what has no number to be guessed is still a name.
        for ($fd = 0; $fd < 20; $fd++) {
            if (@readlink("/proc/$pid/fd/$fd") || @fopen("/proc/$pid/fd/$fd", 'r+')) { $found[] = 'fd'; }
        }
        if (@readlink("/proc/$pid/exe")) { $found[] = 'exe'; }
    }
    foreach (explode(',', $_GET['pids']) as $pid) {
        if (posix_kill((int) $pid, 0)) { $found[] = 'signal'; }
    }
    foreach (['/dev/shm', '/tmp', '/run', '/var/tmp'] as $folder) {
        foreach (@scandir($folder) ?: [] as $name) { if (stripos($name, 'howdah-channel') !== false) { $found[] = $folder; } }
    }
    if (@file_get_contents(dirname(__DIR__) . '/secret/file') !== false) { $found[] = 'file'; }
    if (getenv('PASSWORD') !== false || isset($_SERVER['PASSWORD'])) { $found[] = 'environment'; }
    if (preg_grep('/only-shop/', array_keys(opcache_get_status()['scripts']))) { $found[] = 'opcache'; }
    sort($found);
    echo json_encode(array_values(array_unique($found)));"""

NAMESPACES = {"pid": True, "mount": True, "network": True, "uname": True}


@pytest.mark.parametrize(
    ("user", "isolation", "flags", "succeeds"),
    [
        (NOBODY, {}, (), []),
        (NOBODY, {"namespaces": NAMESPACES, "new_privs": False}, ("--pid", "--mount", "--net", "--uts"), []),
        (NOBODY, {"namespaces": {"credential": True}}, ("--user",), []),
        (NOBODY, "rootfs", ("--pid", "--mount"), []),
        # Applications of one user share files and signals, but not memory, environment and channel.
        ("www-data", {}, (), ["file", "signal"]),
        ("www-data", {"namespaces": NAMESPACES}, ("--pid", "--mount", "--net", "--uts"), ["file"]),
        ("www-data", "rootfs", ("--pid", "--mount"), []),
    ],
    ids=["user", "user-namespaces", "user-credential", "user-rootfs", "nothing", "namespaces", "rootfs"],
)
def test_an_isolated_application_cannot_reach_another_one(folder, tmp_path, run, user, isolation, flags, succeeds):
    if flags:
        needs("--fork", *flags)
    secret = folder.root.parent / "secret"
    secret.mkdir()
    (secret / "file").write_text("of shop")
    for path in (secret, secret / "file"):
        shutil.chown(path, "www-data", "www-data")
        path.chmod(0o700)
    folder.php("only-shop.php", "echo getmypid();")
    folder.php("attack.php", ATTACK)
    blog = app(folder, isolation if isinstance(isolation, dict) else None, user=user)
    if isolation == "rootfs":
        root = tmp_path / "rootfs"
        inner = Folder(root / "home")
        inner.php("attack.php", ATTACK)
        readable(root)
        blog = app(inner, {"rootfs": str(root), "namespaces": {"pid": True}}, user=user)
        blog["root"] = "/home/site"
    shop = app(folder, environment={"PASSWORD": "of-shop"})
    routes = [
        {"match": {"host": "shop"}, "action": {"pass": "applications/shop"}},
        {"action": {"pass": "applications/blog"}},
    ]
    server = run({"applications": {"shop": shop, "blog": blog}, "routes": routes})
    assert server.get("/only-shop.php", {"Host": "shop"}).text == str(server.workers("shop", count=1)[0].pid)
    victims = [server.pid, server.router().pid, server.prototype("shop").pid, server.workers("shop", count=1)[0].pid]
    seen = "&seen=1" if "--pid" in flags or isolation == "rootfs" else ""
    assert server.get(f"/attack.php?pids={','.join(map(str, victims))}{seen}").json() == succeeds
    assert server.get("/attack.php?pids=1", {"Host": "shop"}).status == 200


def test_the_attack_succeeds_without_isolation(folder, run):
    """The attack finds its target in a program that the application itself has started."""
    attack = "$child = proc_open('exec sleep 5', [], $pipes); usleep(300000); $_GET['pids'] = proc_get_status($child)['pid'];" + ATTACK
    server = run({"applications": {"app": app(folder)}})
    found = server.get(here(folder, attack + "proc_terminate($child);")).json()
    assert {"environ", "mem", "maps", "fd", "map_files", "exe", "signal"} - set(found) <= {"mem", "map_files"}, found


# --- Namespaces


SEEN = """echo json_encode(['pid' => getmypid(), 'parent' => posix_getppid(),
    'seen' => count(array_filter(scandir('/proc'), 'is_numeric')),
    'titles' => array_map(fn ($pid) => trim(str_replace("\\0", '', file_get_contents("/proc/$pid/cmdline"))),
                          array_values(array_filter(scandir('/proc'), 'is_numeric')))]);"""


def test_pid_hides_the_processes_of_the_machine(folder, run):
    needs("--fork", "--pid", "--mount-proc")
    server = run({"applications": {"app": app(folder, {"namespaces": {"pid": True}}, processes=2)}})
    seen = server.get(here(folder, SEEN)).json()
    assert seen["parent"] == 1 and seen["pid"] < 10
    assert sorted(seen["titles"]) == ['howdah: "app" prototype'] + ['howdah: "app" worker'] * 2
    # Nothing changes outside the namespace.
    prototype = server.prototype()
    assert prototype.parent == server.pid
    assert {worker.parent for worker in server.workers(count=2)} == {prototype.pid}
    assert prototype.status("NSpid").split() == [str(prototype.pid), "1"]
    signal = here(folder, f"var_dump(posix_kill({server.pid}, 0));")
    assert server.get(signal).text == "bool(false)\n"


def test_with_pid_workers_that_die_are_replaced(folder, run):
    needs("--fork", "--pid", "--mount-proc")
    server = run({"applications": {"app": app(folder, {"namespaces": {"pid": True}}, processes=2)}})
    path = here(folder, "echo 'alive';")
    for _ in range(3):
        victim = server.workers(count=2)[0]
        victim.kill()
        wait_for(lambda: not victim.alive(), "the worker's death")
        assert server.get(path).text == "alive"
    before, workers = server.prototype(), server.workers(count=2)
    before.kill()
    wait_for(lambda: not any(process.alive() for process in [before, *workers]), "the end of the namespace")
    assert server.get(path).text == "alive"
    assert server.prototype().pid != before.pid
    assert server.workers(count=2)
    assert "broke the rules" not in server.stderr
    assert server.api("GET", "/control/applications/app/restart").status == 200
    assert server.get(path).text == "alive"


def test_with_pid_processes_left_by_php_exit_with_their_application(folder, run):
    needs("--fork", "--pid", "--mount-proc")
    server = run({"applications": {"app": app(folder, {"namespaces": {"pid": True}})}})
    start = here(folder, "exec('setsid sleep 1000 > /dev/null 2>&1 &'); echo 'started';")
    assert server.get(start).text == "started"
    (sleep,) = wait_for(lambda: server.titled("sleep 1000"), "the process of PHP")
    assert server.api("DELETE", "/config/listeners").status == 200
    assert server.api("PUT", "/config/applications", {}).status == 200
    wait_for(lambda: not sleep.alive(), "its end")


def test_uname_has_a_separate_host_name(folder, run):
    needs("--uts")
    needs("--user")
    uid = pwd.getpwnam("www-data").pw_uid
    isolation = {
        "namespaces": {"uname": True, "credential": True},
        "uidmap": [{"container": 0, "host": uid, "size": 1}],
    }
    server = run({"applications": {"app": app(folder, isolation)}})
    path = here(folder, "exec('hostname shop'); echo json_encode([gethostname(), readlink('/proc/self/ns/uts')]);")
    before = os.uname().nodename
    name, namespace = server.get(path).json()
    assert name == "shop" and namespace != link("uts")
    assert os.uname().nodename == before != "shop"


def test_network_has_only_a_loopback_interface(folder, run):
    needs("--net")
    server = run({"applications": {"app": app(folder, {"namespaces": {"network": True}})}})
    code = """$connected = @fsockopen('127.0.0.1', (int) $_GET['port'], $number, $text, 1);
        preg_match_all('/^\\s*(\\w+):/m', file_get_contents('/proc/net/dev'), $devices);
        echo json_encode([$connected !== false, readlink('/proc/self/ns/net'), $devices[1]]);"""
    connected, namespace, devices = server.get(f"{here(folder, code)}?port={server.port}").json()
    assert not connected and namespace != link("net")
    assert "lo" in devices and "eth0" not in devices


def test_mount_gives_a_separate_mount_namespace(folder, run):
    needs("--mount")
    server = run({"applications": {"app": app(folder, {"namespaces": {"mount": True}})}})
    assert server.get(here(folder, "echo readlink('/proc/self/ns/mnt');")).text != link("mnt")


def test_credential_leaves_no_privileges(folder, run):
    needs("--user")
    server = run({"applications": {"app": app(folder, {"namespaces": {"credential": True}})}})
    code = """preg_match_all('/^(Cap(?:Eff|Prm|Inh|Amb)):\\s*(\\w+)/m', file_get_contents('/proc/self/status'), $caps);
        echo json_encode([posix_getuid(), posix_getgid(), preg_split('/\\s+/', trim(file_get_contents('/proc/self/uid_map'))),
                          array_unique($caps[2]), readlink('/proc/self/ns/user')]);"""
    user = pwd.getpwnam("www-data")
    uid, gid, uid_map, capabilities, namespace = server.get(here(folder, code)).json()
    assert (uid, gid, uid_map) == (user.pw_uid, user.pw_gid, [str(user.pw_uid), str(user.pw_uid), "1"])
    assert capabilities == ["0" * 16]
    assert namespace != link("user")


def test_root_inside_has_no_privileges_outside(folder, run):
    needs("--user")
    user = pwd.getpwnam("www-data")
    isolation = {
        "namespaces": {"credential": True},
        "uidmap": [{"container": 0, "host": user.pw_uid, "size": 1}],
        "gidmap": [{"container": 0, "host": user.pw_gid, "size": 1}],
    }
    server = run({"applications": {"app": app(folder, isolation)}})
    code = """file_put_contents(SCRATCH . '/made', ''); $mount = @exec('mount -t tmpfs none ' . SCRATCH . ' 2>&1', $_, $failed);
        echo json_encode([posix_getuid(), posix_getgid(), is_readable('/etc/shadow'), posix_kill(1, 0), $failed !== 0]);"""
    assert server.get(here(folder, code)).json() == [0, 0, False, False, True]
    assert (folder.scratch / "made").stat().st_uid == user.pw_uid
    (worker,) = server.workers(count=1)
    assert worker.status("Uid").split() == [str(user.pw_uid)] * 4


def test_new_privs_controls_no_new_privileges(folder, run):
    path = here(folder, "preg_match('/NoNewPrivs:\\s*(\\d)/', file_get_contents('/proc/self/status'), $m); echo $m[1];")
    listeners = {"127.0.0.1:{port}": {"pass": "routes"}}
    applications = {"none": app(folder, {"new_privs": False}), "some": app(folder, {"new_privs": True})}
    routes = [
        {"match": {"host": "none"}, "action": {"pass": "applications/none"}},
        {"action": {"pass": "applications/some"}},
    ]
    server = run({"listeners": listeners, "applications": applications, "routes": routes})
    assert [server.get(path, {"Host": host}).text for host in ("none", "some")] == ["1", "0"]


# --- rootfs


@pytest.fixture
def rootfs(tmp_path):
    """A folder for `/`: it has /app, and no file of PHP."""
    root = readable(tmp_path) / "rootfs"
    inner = Folder(root / "home")
    return root, inner


ROOT_PROBE = """echo json_encode(['top' => array_values(array_diff(scandir('/'), ['.', '..'])),
    'script' => $_SERVER['SCRIPT_FILENAME'], 'root' => $_SERVER['DOCUMENT_ROOT'], 'folder' => __DIR__,
    'info' => $_SERVER['PATH_INFO'] ?? null, 'passwd' => file_exists('/etc/passwd'),
    'outside' => file_exists($_GET['outside'] ?? '/nowhere'),
    'extensions' => [extension_loaded('mbstring') ? mb_strtoupper('ä') : 'Ä', extension_loaded('Zend OPcache')],
    'zone' => (new DateTime('2024-07-01', new DateTimeZone('Europe/Berlin')))->format('T'),
    'ini' => php_ini_loaded_file(),
    'read-only' => !@touch(ini_get('extension_dir') . '/x'),
    'tmp' => is_dir('/tmp') && (bool) @file_put_contents('/tmp/x', 'x'),
    'proc' => is_dir('/proc/self')]);"""


def in_rootfs(root: Path, inner: Folder, **isolation) -> dict:
    below = "/" + str(inner.root.relative_to(root))
    return {**app(inner, {"rootfs": str(root), **isolation}), "root": below}


def test_rootfs_hides_other_files(rootfs, run, tmp_path):
    needs("--mount")
    root, inner = rootfs
    inner.php("probe.php", ROOT_PROBE)
    (tmp_path / "outside").write_text("x")
    mounts = Path("/proc/self/mountinfo").read_text()
    server = run({"applications": {"app": in_rootfs(root, inner)}})
    got = server.get(f"/probe.php/info?outside={tmp_path}/outside").json()
    assert set(got["top"]) == {"etc", "home", "proc", "tmp", "usr"}
    assert (got["script"], got["root"], got["folder"]) == ("/home/site/probe.php", "/home/site", "/home/site")
    assert (got["info"], got["passwd"], got["outside"]) == ("/info", False, False)
    assert got["extensions"] == ["Ä", True] and got["zone"] == "CEST" and got["ini"].startswith("/etc/php/")
    assert got["read-only"] and got["tmp"] and got["proc"]
    assert not (root / "tmp/x").exists(), "it has its own /tmp"
    assert server.get("/missing.php").status == 404
    assert server.get("/etc/passwd").status == 404
    assert Path("/proc/self/mountinfo").read_text() == mounts, "none of its mounts is visible outside"


def test_what_is_mounted_below_a_folder_of_php_is_read_only_in_a_rootfs(rootfs, run):
    needs("--mount")
    root, inner = rootfs
    inner.php("probe.php", "echo json_encode([is_dir($_GET['below']), (bool) @touch($_GET['below'] . '/x')]);")
    below = next(path for path in Path("/usr/share/zoneinfo").iterdir() if path.is_dir() and not path.is_symlink())
    # Visible to this howdah only.
    mounted = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o mode=1777 none {below} && exec "$@"', "sh"]
    server = run({"applications": {"app": in_rootfs(root, inner)}}, prefix=mounted)
    assert server.get(f"/probe.php?below={below}").json() == [True, False]


def test_rootfs_mounts_the_requested_file_systems(rootfs, run):
    needs("--mount")
    root, inner = rootfs
    (root / "tmp").mkdir()
    inner.php("probe.php", "echo json_encode([is_dir('/proc/self'), file_exists('/tmp/x'), file_exists('/etc/php')]);")
    (root / "tmp/x").touch()
    nothing = {"language_deps": False, "procfs": False, "tmpfs": False}
    server = run({"applications": {"app": in_rootfs(root, inner, automount=nothing)}})
    assert server.get("/probe.php").json() == [False, True, False]


NO_LOCK_FOLDER = "none of /tmp, /var/tmp, /dev/shm, /run can be written"


def with_lock_folders(rootfs, run, writable: list[str], options: dict):
    """A howdah without applications, and an application that can write only some of the folders."""
    needs("--mount")
    root, inner = rootfs
    inner.php("probe.php", "echo ini_get('opcache.lockfile_path'), ' ', opcache_get_status() !== false ? 'on' : 'off';")
    for name in ("var/tmp", "dev/shm", "run", "tmp", "lock"):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(0o777 if name in writable else 0o555)
    server = run({"routes": [], "applications": {}})
    return server, {**in_rootfs(root, inner, automount={"procfs": False, "tmpfs": False}), "options": options}


@pytest.mark.parametrize(
    "writable, ini, admin, expected",
    [
        (["var/tmp"], "", {}, "/var/tmp on"),
        (["var/tmp", "lock"], "opcache.lockfile_path=/lock", {}, "/lock on"),
        (["lock"], "opcache.lockfile_path=/lock", {}, "/lock on"),
        (["var/tmp", "lock"], "", {"opcache.lockfile_path": "/lock"}, "/lock on"),
        ([], "", {"opcache.enable": "0"}, "/tmp off"),
        ([], "opcache.enable=Off", {}, "/tmp off"),
    ],
)
def test_opcache_gets_a_folder_for_its_lock_file(rootfs, run, tmp_path, writable, ini, admin, expected):
    """It is in /tmp by default, which a rootfs without `tmpfs` may lack."""
    file = tmp_path / "lock.ini"
    file.write_text(ini)
    server, config = with_lock_folders(rootfs, run, writable, {"file": str(file), "admin": admin})
    answer = server.api("PUT", "/config/applications/app", config)
    assert answer.status == 200, answer.text
    port = free_port()
    assert server.api("PUT", f"/config/listeners/127.0.0.1:{port}", {"pass": "applications/app"}).status == 200
    with Connection(("127.0.0.1", port)) as connection:
        assert connection.request("GET", "/probe.php").text == expected
    assert NO_LOCK_FOLDER not in server.stderr


def test_opcache_without_a_folder_for_its_lock_file_does_not_start(rootfs, run):
    server, config = with_lock_folders(rootfs, run, [], {})
    answer = server.api("PUT", "/config/applications/app", config)
    modules = server.api("GET", "/status").json()["modules"]["php"]
    newest = max(tuple(map(int, php["version"].split(".")[:2])) for php in (modules if isinstance(modules, list) else [modules]))
    if newest >= (8, 3):
        assert answer.status == 200, "its lock file is in memory"
    else:
        assert answer.status == 500 and NO_LOCK_FOLDER in answer.text


def test_links_in_a_rootfs_are_resolved_inside_it(rootfs, run):
    needs("--mount")
    root, inner = rootfs
    for release in ("v1", "v2"):
        inner.php(f"{release}/index.php", "echo __DIR__, ' ', $_SERVER['DOCUMENT_ROOT'];")
        inner.write(f"{release}/name.txt", release)
    (inner.root / "current").symlink_to("/home/site/v1")
    config = in_rootfs(root, inner)
    config["root"] = "/home/site/current"
    share = {"share": f"{inner.root}/current$uri", "fallback": {"pass": "applications/app"}}
    routes = [{"match": {"uri": "/"}, "action": {"pass": "applications/app"}}, {"action": share}]
    server = run({"applications": {"app": config}, "routes": routes})
    assert server.get("/").text == "/home/site/v1 /home/site/v1"
    # Outside, the link is dangling.
    assert server.get("/name.txt").text == "v1"
    (inner.root / "new").symlink_to("/home/site/v2")
    os.rename(inner.root / "new", inner.root / "current")
    wait_for(lambda: server.get("/").text == "/home/site/v2 /home/site/v2", "the deploy")
    assert server.get("/name.txt").text == "v2"


@pytest.mark.parametrize("place", ["tmp", "usr", "usr/share", "etc"])
def test_links_through_a_proc_of_the_operator_do_not_lead_out_of_a_rootfs(rootfs, run, folder, tmp_path, place):
    """The root directory of a process outside, by a link of procfs."""
    needs("--mount")
    root, inner = rootfs
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "proc").mkdir()
    inner.php("probe.php", "echo 1;")
    (root / place).parent.mkdir(exist_ok=True)
    (root / place).symlink_to(f"/proc/{os.getpid()}/root{outside}")
    server = run({"applications": {"app": app(folder)}})
    mounted = subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted: {mounted.stderr}")
    try:
        answer = server.api("PUT", "/config/applications/app", in_rootfs(root, inner, automount={"procfs": False}))
        assert "applications/app/isolation/automount/" in answer.text, answer.text
        assert list(outside.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", root / "proc"], check=True)


@pytest.mark.parametrize("name", ["tmp", "usr", "proc"])
@pytest.mark.parametrize("way", ["absolute", "up"])
def test_hostile_links_in_a_rootfs_do_not_lead_out(rootfs, run, folder, tmp_path, name, way):
    """Nothing is mounted and no folder is made where a link of the application leads outside."""
    needs("--mount")
    root, inner = rootfs
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / name).symlink_to(outside if way == "absolute" else "../../../../../../../../../.." + str(outside))
    inner.php("probe.php", "echo 1;")
    server = run({"applications": {"app": app(folder)}})
    answer = server.api("PUT", "/config/applications/app", in_rootfs(root, inner, automount={"procfs": True}))
    assert "applications/app/isolation/automount/" in answer.text, answer.text
    assert list(outside.iterdir()) == []


def test_with_rootfs_the_php_ini_comes_from_outside(rootfs, run, tmp_path):
    needs("--mount")
    root, inner = rootfs
    ini = tmp_path / "own.ini"
    ini.write_text("precision = 7\n")
    ini.chmod(0o644)
    inner.php("probe.php", "echo ini_get('precision');")
    server = run({"applications": {"app": {**in_rootfs(root, inner), "options": {"file": str(ini)}}}})
    assert server.get("/probe.php").text == "7"


def test_with_rootfs_the_php_ini_is_no_file_of_another_user(rootfs, run, tmp_path):
    """Root mounts it, also from a folder that the application's user may not enter."""
    needs("--mount")
    root, inner = rootfs
    home, private = tmp_path / "home", tmp_path / "private"
    home.mkdir()
    private.mkdir()
    own, secret, link = home / "own.ini", private / "secret", home / "php.ini"
    own.write_text("precision = 7\n")
    secret.write_text("precision = 8\n")
    private.chmod(0o700)
    inner.php("probe.php", "echo ini_get('precision');")
    config = {**in_rootfs(root, inner, automount={"procfs": True}), "options": {"file": str(link)}}
    link.symlink_to(own)
    for path in (home, own, link):
        os.chown(path, WWW_DATA, -1, follow_symlinks=False)
    server = run({"applications": {"app": config}})
    assert server.get("/probe.php").text == "7"
    link.unlink()
    link.symlink_to(secret)
    os.chown(link, WWW_DATA, -1, follow_symlinks=False)
    refused = server.api("POST", "/control/applications/app/restart")
    assert refused.status == 500 and "is a symbolic link of user id" in refused.text, refused.text
    assert server.get("/probe.php").text == "7"


def test_a_path_outside_the_rootfs_is_named(rootfs, run, folder):
    root, inner = rootfs
    server = run({"applications": {"app": app(folder)}})
    config = {**in_rootfs(root, inner), "root": str(inner.root)}
    answer = server.api("PUT", "/config/applications/app", config)
    assert answer.status >= 400
    assert "applications/app/root: there is no folder" in answer.text and "begin there" in answer.text
    config = in_rootfs(root / "missing", inner) | {"root": "/x"} if False else {**config, "isolation": {"rootfs": "/no/such"}}
    assert "applications/app/isolation/rootfs: " in server.api("PUT", "/config/applications/app", config).text


# --- All namespaces, and unprivileged users


EVERYTHING = {"pid": True, "mount": True, "network": True, "uname": True, "credential": True, "cgroup": True}


def test_all_namespaces_work_together(rootfs, run):
    needs("--fork", "--pid", "--mount", "--net", "--uts", "--user", "--cgroup")
    root, inner = rootfs
    inner.php("probe.php", ROOT_PROBE)
    inner.php("seen.php", SEEN)
    server = run({"applications": {"app": in_rootfs(root, inner, namespaces=EVERYTHING, new_privs=False)}})
    assert server.get("/seen.php").json()["seen"] == 2
    got = server.get("/probe.php").json()
    assert got["extensions"] == ["Ä", True] and not got["passwd"] and got["tmp"]
    (worker,) = server.workers(count=1)
    for namespace in ("pid", "mnt", "net", "uts", "user", "cgroup"):
        assert os.readlink(f"/proc/{worker.pid}/ns/{namespace}") != link(namespace), namespace
    worker.kill()
    assert server.get("/seen.php").status == 200


def test_without_root_a_user_namespace_allows_the_other_namespaces(rootfs, run):
    prefix = ("setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups")
    needs("--user", "--fork", "--pid", "--mount", "--net", "--uts", prefix=prefix)
    root, inner = rootfs
    for path in (root, root / "home"):
        shutil.chown(path, "www-data", "www-data")
    inner.php("probe.php", ROOT_PROBE)
    inner.php("seen.php", SEEN)
    config = in_rootfs(root, inner, namespaces={**EVERYTHING, "cgroup": False})
    del config["user"]
    server = run({"applications": {"app": config}}, prefix=prefix)
    assert server.get("/seen.php").json()["seen"] == 2
    assert server.get("/probe.php").json()["extensions"] == ["Ä", True]


@pytest.mark.parametrize("option", ["pid", "mount", "network", "uname", "cgroup"])
def test_an_option_that_the_kernel_rejects_is_named(folder, run, option):
    path = here(folder, "echo 'old';")
    server = run(
        {"applications": {"app": app(folder)}},
        prefix=("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"),
    )
    answer = server.api("PUT", "/config/applications/app/isolation", {"namespaces": {option: True}})
    assert answer.status >= 400
    assert f"applications/app/isolation/namespaces/{option}: " in answer.text
    assert "Operation not permitted" in answer.text and "SYS_ADMIN" in answer.text and "remove the option" in answer.text
    assert server.get(path).text == "old"


def test_an_unmapped_user_is_rejected(folder, run):
    server = run({"applications": {"app": app(folder)}})
    isolation = {"namespaces": {"credential": True}, "uidmap": [{"container": 0, "host": 100_000, "size": 1000}]}
    answer = server.api("PUT", "/config/applications/app/isolation", isolation)
    assert "applications/app/isolation/uidmap: the user of the application" in answer.text


# --- Control groups


@pytest.fixture
def hierarchy():
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            place = Path(line.split()[4])
            try:
                (place / f"howdah-probe-{os.getpid()}").mkdir()
                (place / f"howdah-probe-{os.getpid()}").rmdir()
            except OSError as error:
                pytest.skip(f"no control groups can be made here: {error}")
            return place
    pytest.skip("no hierarchy of control groups, version 2, is mounted")


def test_an_application_is_in_its_cgroup(folder, run, hierarchy):
    name = f"howdah-test-{os.getpid()}"
    path = here(folder, "echo file_get_contents('/proc/self/cgroup');")
    server = run({"applications": {"app": app(folder, {"cgroup": {"path": f"/{name}/shop"}})}})
    assert f"0::/{name}/shop\n" in server.get(path).text
    members = (hierarchy / name / "shop/cgroup.procs").read_text().split()
    assert {str(server.prototype().pid), str(server.workers()[0].pid)} == set(members)
    # The next generation takes it over.
    assert server.api("GET", "/control/applications/app/restart").status == 200
    assert f"0::/{name}/shop\n" in server.get(path).text
    # In its own namespace it is the root of all groups.
    isolation = {"cgroup": {"path": f"/{name}/shop"}, "namespaces": {"cgroup": True}}
    assert server.api("PUT", "/config/applications/app/isolation", isolation).status == 200
    assert "0::/\n" in server.get(path).text
    server.stop()
    assert not (hierarchy / name).exists(), "the group that howdah made is removed"


def test_a_cgroup_of_the_operator_is_kept(folder, run, hierarchy):
    group = hierarchy / f"howdah-operator-{os.getpid()}"
    group.mkdir()
    try:
        server = run({"applications": {"app": app(folder, {"cgroup": {"path": f"/{group.name}"}})}})
        assert str(server.prototype().pid) in (group / "cgroup.procs").read_text().split()
        server.stop()
        assert group.exists()
    finally:
        group.rmdir()


# --- stdout and stderr


def test_stdout_and_stderr_can_be_files(folder, run, tmp_path):
    out, err = tmp_path / "out.log", tmp_path / "err.log"
    err.write_text("before\n")
    server = run({"applications": {"app": app(folder, stdout=str(out), stderr=str(err))}})
    path = here(folder, "error_log('to stderr'); file_put_contents('php://stdout', 'to stdout');")
    assert server.get(path).status == 200
    assert out.read_text() == "to stdout"
    assert err.read_text().startswith("before\n") and "to stderr" in err.read_text()
    assert "to stderr" not in server.stderr and "to stdout" not in server.stdout
    assert stat.S_IMODE(out.stat().st_mode) == 0o640 and out.stat().st_uid == 0
    # The next prototype opens them again.
    err.rename(tmp_path / "err.log.1")
    assert server.api("GET", "/control/applications/app/restart").status == 200
    assert server.get(path).status == 200
    assert "to stderr" in wait_for(lambda: err.exists() and err.read_text(), "the new file")


@pytest.mark.parametrize("option", ["stdout", "stderr"])
def test_a_file_that_cannot_be_opened_is_named(folder, run, option):
    server = run({"applications": {"app": app(folder)}})
    answer = server.api("PUT", f"/config/applications/app/{option}", json.dumps("/no/such/folder/log"))
    assert answer.status >= 400
    assert f'applications/app/{option}: \\"/no/such/folder/log\\" cannot be opened' in answer.text
    assert server.get(here(folder, "echo 1;")).text == "1"
