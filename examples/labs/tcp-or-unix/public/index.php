<?php

$sum = 0;
for ($i = 0; $i < 1000; $i++) {
    mt_srand($i);
    $sum += $i % 2 ? mt_rand() : -mt_rand();
}
echo $sum;

phpinfo();
