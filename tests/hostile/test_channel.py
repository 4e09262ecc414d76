"""Scripts that write into the memory that their worker shares with the router: other requests get their answers."""

import pytest

from support.background import Background
from support.waiting import wait_for

# States that the router does not write: it cannot cancel a request that it does not find in its own state. The place of the slots: see
# Layout in crates/channel, for 64 slots and one thread of the router.
MARKS_QUEUED_REQUESTS = r"""
if (!class_exists('FFI')) { http_response_code(501); return; }
$map = preg_grep('/ rw-s .*memfd:howdah-channel/', file('/proc/self/maps'));
$slots = 128 + 128 + 1024 * 128 + 2 * 128 + 128 + 64 * 2 * 8;
$words = FFI::cast('uint64_t *', hexdec(strtok(reset($map), '-')) + $slots);
const SUBMITTED = 1;
file_put_contents($_GET['begins'], '');
for ($until = microtime(true) + 6; microtime(true) < $until;) {
    for ($slot = 0; $slot < 64; $slot++) {
        if (($words[$slot * 16] & 15) === SUBMITTED) { $words[$slot * 16] |= 0xff0; }
    }
}
"""


def test_requests_that_a_worker_marks_are_answered_in_time(run, folder):
    folder.php("attack.php", MARKS_QUEUED_REQUESTS)
    folder.php("index.php", "echo 'here';")
    begins = folder.scratch / "begins"
    application = {
        "type": "php",
        "root": str(folder.root),
        "processes": 1,
        "limits": {"queue_timeout": 1, "timeout": 30},
        "options": {"admin": {"ffi.enable": "1"}},
    }
    server = run({"applications": {"app": application}, "settings": {"listen_threads": 1}})
    attack = Background(server.get, f"/attack.php?begins={begins}", timeout=60)
    wait_for(lambda: begins.exists() or attack.done(), "the attack")
    if not begins.exists():
        assert attack.result().status == 501
        pytest.skip("this PHP has no FFI")
    # Before the end of the attack.
    response = server.get("/", timeout=4)
    assert response.status in (502, 503), response.text
    assert attack.result().status == 502
    server.wait_for_log_line("a slot's state does not exist", "all are replaced")
