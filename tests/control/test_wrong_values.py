"""Every option of the configuration with a wrong value: the control API answers 400 and names the option.

`EVERYTHING` has each option of the schema once; a test compares it with the schema.
"""

import copy
import json
import subprocess

import pytest

from support.server import REPOSITORY, Howdah, stop_all

KEY = "QUFB" * 16
OTHER_KEY = "QkJC" * 16
HASH = "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="

EVERYTHING = {
    "listeners": {
        "*:8300": {
            "pass": "applications/shop/index",
            "backlog": 511,
            "http2": True,
            "http3": {"early_data": True},
            "forwarded": {
                "client_ip": "X-Forwarded-For",
                "protocol": "X-Forwarded-Proto",
                "source": ["10.0.0.0/8", "unix"],
                "recursive": True,
            },
            "tls": {
                "certificate": ["bundle"],
                "conf_commands": {"minprotocol": "TLSv1.2"},
                "session": {"cache_size": 10, "timeout": 60, "tickets": [KEY]},
            },
        },
        "*:8301": {"pass": "upstreams/backends", "client_ip": {"header": "X-Real-IP", "source": "127.0.0.1", "recursive": False}},
        "*:8302": {"redirect": "https"},
        "*:8303": {
            "pass": "routes/main",
            "tls": {
                "certificate": "bundle",
                "client_ca": ["bundle"],
                "client_verify": "optional",
                "hsts": {"max_age": 31536000, "include_subdomains": True, "preload": True},
                "acme": {
                    "domains": ["shop.example"],
                    "contact": "ops@shop.example",
                    "authorities": [
                        {
                            "directory": "https://127.0.0.1:14000/directory",
                            "external_account": {"key_id": "x", "hmac_key": "AAECAwQFBgcICQoLDA0ODxAREhM"},
                            "roots": "bundle",
                        }
                    ],
                    "challenges": ["dns-01"],
                    "dns": {"command": ["/bin/true"], "wait": 60},
                    "key": "p384",
                    "on_demand": {"ask": "http://127.0.0.1:9000/allowed", "names": 100},
                },
            },
        },
        "unix:@x": {"pass": "routes/main"},
        "*:8304": {"pass": "routes/main", "protocol": "fastcgi", "allowed_clients": ["10.0.0.1"]},
        "unix:/run/x.sock": {"pass": "routes/main", "socket": {"user": "root", "group": "root", "mode": "0660"}},
    },
    "routes": {
        "main": [
            {
                "match": {
                    "arguments": {"a": "1"},
                    "cookies": {"c": "!x"},
                    "destination": "127.0.0.1:80",
                    "headers": [{"X": "y*"}],
                    "host": "~^www",
                    "method": "GET",
                    "query": "q",
                    "scheme": "https",
                    "source": "10.0.0.0-10.0.0.9",
                    "uri": ["/a", "!/b"],
                    "if": "$arg_x",
                },
                "action": {"pass": "applications/shop/index", "rewrite": "/new$uri", "response_headers": {"X-A": "$host"}, "early_hints": ["</a>; rel=preload"], "rate_limit": {"requests": 5, "per": 2}, "connection_limit": 3, "basic_auth": {"realm": "x", "users": {"ann": HASH}, "user_file": "/etc/htpasswd"}},
            },
            {
                "action": {
                    "share": "/srv$uri",
                    "index": "index.html",
                    "types": ["image/*"],
                    "chroot": "/srv/$host",
                    "follow_symlinks": False,
                    "traverse_mounts": False,
                    "fallback": {
                        "proxy": "https://127.0.0.1:8443", "forwarded_headers": True, "connect_timeout": 5, "response_timeout": 5,
                        "tls": {"ca": "bundle", "server_name": "x.example", "client_certificate": "bundle", "verify": True},
                    },
                }
            },
            {"action": {"return": 301, "location": "https://$host"}},
        ]
    },
    "upstreams": {
        "backends": {
            "servers": {"127.0.0.1:9000": {"weight": 0.5, "drain": False}},
            "max_fails": 3,
            "fail_timeout": "10s",
            "health_check": {
                "path": "/health", "host": "x.example", "interval": 5, "timeout": 1, "status": ["200-299"], "fails": 2, "passes": 2
            },
        }
    },
    "applications": {
        "shop": {
            "type": "php 8.2",
            "targets": {
                "index": {"root": "/srv", "script": "index.php"},
                "other": {"root": "/srv", "index": "main.php", "front_controller": "main.php"},
            },
            "options": {"file": "/etc/php.ini", "admin": {"a": "1"}, "user": {"b": "2"}},
            "limits": {"timeout": 10, "requests": 100, "memory": "128M", "queue_timeout": 5},
            "retry": "idempotent",
            "drain": True,
            "processes": {"max": 5, "spare": 1, "idle_timeout": 10},
            "environment": {"E": "x"},
            "inherit_environment": True,
            "working_directory": "/srv",
            "user": "www-data",
            "group": "www-data",
            "stdout": "/var/log/out",
            "stderr": "/var/log/err",
            "warm_up": [{"target": "index", "uri": "/", "host": "shop", "scheme": "https", "headers": {"X-Warm": "1"}}],
            "reload": "on-swap",
            "resolve_links": True,
            "send_file": {"/files/": "/srv/files"},
            "slow_log": {"threshold": 0.5, "path": "/var/log/slow", "samples": 3},
            "isolation": {
                "namespaces": dict.fromkeys(("cgroup", "credential", "mount", "network", "pid", "uname"), True),
                "uidmap": [{"container": 0, "host": 1000, "size": 1}],
                "gidmap": [{"container": 0, "host": 1000, "size": 1}],
                "rootfs": "/srv/root",
                "automount": {"language_deps": True, "procfs": True, "tmpfs": True},
                "cgroup": {"path": "shop"},
                "new_privs": False,
            },
        },
        "plain": {"type": "php", "root": "/srv", "script": "index.php"},
        "folder": {"type": "php", "root": "/srv", "index": "main.php", "front_controller": "main.php", "processes": 2},
        "resident": {"type": "php", "root": "/srv", "worker": {"script": "worker.php", "preboot": True, "concurrency": 100}},
        "residents": {"type": "php", "root": "/srv", "worker": [{"script": "a.php", "match": ["/a/*"], "processes": 2}]},
        "chat": {
            "type": "http",
            "command": ["php", "server.php"],
            "address": "unix",
            "processes": 2,
            "working_directory": "/srv",
            "environment": {"E": "x"},
            "inherit_environment": True,
            "user": "www-data",
            "group": "www-data",
            "stdout": "/var/log/out",
            "stderr": "/var/log/err",
            "isolation": {"cgroup": {"path": "chat"}},
            "health_check": {"path": "/health"},
            "forwarded_headers": True,
            "connect_timeout": 5,
            "response_timeout": 5,
            "drain_timeout": 5,
            "stop_timeout": 5,
            "drain": False,
            "send_file": {"/p/": "/srv"},
        },
        "jobs": {
            "type": "roadrunner",
            "drain": False,
            "command": "php worker.php",
            "processes": 2,
            "limits": {"timeout": 5, "requests": 5, "memory": 1073741824, "queue_timeout": 5},
            "relay": "tcp",
            "codec": "proto",
            "ttl": 3600,
            "idle_ttl": 60,
            "raw_body": False,
            "working_directory": "/srv",
            "environment": {"E": "x"},
            "inherit_environment": True,
            "user": "www-data",
            "group": "www-data",
            "stderr": "/var/log/err",
            "isolation": {"cgroup": {"path": "jobs"}},
            "stop_timeout": 5,
            "send_file": {"/p/": "/srv"},
        },
        "legacy": {
            "type": "fastcgi",
            "drain": False,
            "address": ["127.0.0.1:9000"],
            "root": "/srv",
            "remote_root": "/app",
            "script": "index.php",
            "index": "index.php",
            "parameters": {"A": "x"},
            "connections": 5,
            "keep_alive": 1,
            "limits": {"timeout": 5, "queue_timeout": 5},
            "retry": "idempotent",
            "send_file": {"/p/": "/srv"},
        },
        "legacies": {
            "type": "fastcgi",
            "address": "unix:/run/php.sock",
            "targets": {
                "a": {"root": "/srv", "remote_root": "/app", "script": "index.php", "index": "index.php"},
                "b": {"root": "/srv", "front_controller": "index.php"},
            },
        },
        "front": {"type": "fastcgi", "address": "unix:/run/php.sock", "root": "/srv", "front_controller": "index.php"},
        "sized": {"type": "php", "root": "/srv", "processes": {"auto": {"max": 9, "memory": 1073741824}}},
    },
    "settings": {
        "listen_threads": 2,
        "metrics": {"listen": "*:8399", "allow": ["192.0.2.0/24"]},
        "telemetry": {
            "endpoint": "http://127.0.0.1:4318/v1/traces", "protocol": "http", "batch_size": 20, "sampling_ratio": 0.5,
            "parent_based": True, "service_name": "shop", "metrics_interval": 60, "logs": True, "headers_file": "/srv/headers",
            "ca_file": "/srv/ca.pem",
        },
        "http": {
            "header_read_timeout": 1,
            "request_id": {"accept": False, "response": True},
            "body_read_timeout": 1,
            "send_timeout": 1,
            "idle_timeout": 1,
            "max_body_size": 1,
            "body_buffer_size": 1,
            "body_temp_path": "/tmp",
            "discard_unsafe_fields": True,
            "log_route": False,
            "server_version": True,
            "chunked_transform": True,
            "http2": {"max_concurrent_streams": 10},
            "error_pages": {"404": "/srv/404.html"},
            "static": {"mime_types": {"text/x-a": [".a"]}},
            "compression": {"types": ["text/*"], "compressors": [{"encoding": "gzip", "level": 5, "min_length": 10}]},
        },
    },
    "access_log": {"path": "/var/log/access", "format": "$uri", "if": "$status", "skip": [{"status": ["200-299"], "uri": "/health"}]},
}
WRONG = [[None]]


def options(value, path=()):
    """The paths of all options, including those below names that users choose."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield (*path, key)
            yield from options(member, (*path, key))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from options(element, (*path, index))


def with_wrong(path):
    config = copy.deepcopy(EVERYTHING)
    place = config
    for step in path[:-1]:
        place = place[step]
    # An array is a valid form of `routes`; the error is then a pass to a named route.
    place[path[-1]] = 7 if path == ("routes",) else WRONG
    return config


def written(path):
    return "/".join(str(step).replace("%", "%25").replace("/", "%2F") for step in path)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=x"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    server = Howdah(lambda _: ["run"], ready=lambda server: "howdah" in server.stdout)
    # Otherwise its name would be the first error.
    bundle = (folder / "cert.pem").read_text() + (folder / "key.pem").read_text()
    assert server.api("PUT", "/certificates/bundle", bundle).status == 200
    yield server
    stop_all([server])


def test_every_option_of_the_schema_is_tested():
    """Each option of the schema that howdah supports is in `EVERYTHING`."""
    schema = json.loads((REPOSITORY / "crates/config/schema.json").read_text())
    known = set()

    def collect(node):
        if isinstance(node, dict):
            for name, option in node.get("properties", {}).items():
                # `"not": {}` fits no value: an option of Unit that howdah rejects.
                if not (isinstance(option, dict) and option.get("not") == {}):
                    known.add(name)
            for member in node.values():
                collect(member)
        elif isinstance(node, list):
            for element in node:
                collect(element)

    collect({key: value for key, value in schema.items() if key != "$defs"})
    for name, definition in schema["$defs"].items():
        if name != "conf_commands":
            collect(definition)
    written_here = {step for path in options(EVERYTHING) for step in path if isinstance(step, str)}
    assert known - written_here == set()


@pytest.mark.parametrize("path", options(EVERYTHING), ids=written)
def test_a_wrong_value_is_named(server, path):
    answer = server.api("PUT", "/config", with_wrong(path))
    assert answer.status == 400, answer.text
    refusal = answer.json()
    assert refusal["error"] == "Invalid configuration."
    assert refusal["detail"].startswith(written(path)), refusal["detail"]
    assert server.api("GET", "/config").json() == {"listeners": {}, "routes": [], "applications": {}}


def test_keys_are_never_returned_and_are_kept_by_a_change(server):
    listener = {"pass": "routes", "tls": {"certificate": "bundle", "session": {"tickets": [KEY]}}}
    name = "/config/listeners/unix:@howdah-test-keys"
    try:
        assert server.api("PUT", name, listener).status == 200
        for path in ("/", "/config", name, f"{name}/tls/session/tickets", f"{name}/tls/session/tickets/0"):
            answer = server.api("GET", path)
            assert KEY not in answer.text and "(hidden key " in answer.text
        whole = server.api("GET", "/config").json()
        whole["routes"] = [{"action": {"return": 204}}]
        assert server.api("PUT", "/config", whole).status == 200, "a configuration that was read can be sent back"
        stored = (server.directory / "state" / "conf.json").read_text()
        assert KEY in stored and "hidden" not in stored
        answer = server.api("PUT", f"{name}/tls/session/tickets", ["(hidden key)"])
        assert answer.status == 400 and "stands for a hidden key" in answer.json()["detail"]
        hidden = server.api("GET", f"{name}/tls/session/tickets/0").json()
        assert server.api("PUT", f"{name}/tls/session/tickets", [OTHER_KEY, hidden]).status == 200
        stored = json.loads((server.directory / "state" / "conf.json").read_text())
        kept = stored["listeners"]["unix:@howdah-test-keys"]["tls"]["session"]["tickets"]
        assert kept == [OTHER_KEY, KEY], "a key is recognized by its placeholder, not by its position"
        assert KEY not in server.stderr
    finally:
        assert server.api("PUT", "/config", {"listeners": {}, "routes": [], "applications": {}}).status == 200
