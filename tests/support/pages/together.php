<?php // Waits until `count` workers are in this script at once (they meet in the folder `in`), then runs the script `then`.
set_time_limit(0);
touch($_GET['in'] . '/' . getmypid());
for ($turn = 0; $turn < 10000 && count(glob($_GET['in'] . '/*')) < $_GET["count"]; $turn++) {
    usleep(2000);
}
require $_GET['then'];
