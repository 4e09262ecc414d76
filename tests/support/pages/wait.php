<?php // Creates the file `started`, waits until the file `until` exists, and answers with its pid.
set_time_limit(0);
if (isset($_GET['started'])) {
    touch($_GET['started']);
}
for ($turn = 0; !file_exists($_GET["until"]) && $turn < 10000; $turn++) {
    clearstatcache();
    usleep(2000);
}
echo getmypid();
