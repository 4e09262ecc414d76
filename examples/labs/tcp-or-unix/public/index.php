<?php

function make_seed(): int
{
    [$fraction, $seconds] = explode(' ', microtime());
    return (int) ((float) $seconds + (float) $fraction * 100000);
}

$sum = 0;
for ($i = 1; $i <= 1000; $i++) {
    mt_srand(make_seed());
    $sum += $i % 2 ? -mt_rand() : mt_rand();
}
echo $sum;

phpinfo();
