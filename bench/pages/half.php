<?php
// Half of the requests wait.
if (mt_rand(0, 1)) {
    usleep(5000);
}
echo 'done';
