<?php
// Uses a processor for ?ms= milliseconds, whatever the machine's speed and its other load.
function used(): float
{
    $usage = getrusage();
    return ($usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec']) * 1e3 + ($usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec']) / 1e3;
}

$until = used() + (float) ($_GET['ms'] ?? 10);
while (used() < $until) {
    for ($i = 0; $i < 500; $i++) {
        md5((string) $i);
    }
}
echo 'done';
