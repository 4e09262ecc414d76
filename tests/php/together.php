<?php // Waits until `count` workers are in this script at once (they meet in the folder `in`), then runs the script `then`.
set_time_limit(0);
touch($_GET['in'] . '/' . getmypid());
while (count(glob($_GET['in'] . '/*')) < $_GET['count']) {
    usleep(2000);
}
require $_GET['then'];
