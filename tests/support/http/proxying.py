"""Configurations that forward requests to upstreams."""


def proxy_configuration(action: dict, http: dict | None = None, **more) -> dict:
    """All requests get the action."""
    return {"routes": [{"action": action}], "settings": {"http": http or {}}, **more}


def upstream_group(*servers) -> dict:
    """All requests go to these servers, given as (upstream or address, weight)."""
    servers = {getattr(server, "address", server): {"weight": weight} for server, weight in servers}
    return {
        "listeners": {"127.0.0.1:{port}": {"pass": "upstreams/u"}},
        "upstreams": {"u": {"servers": servers}},
    }
