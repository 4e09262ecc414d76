<?php
// Some milliseconds of CPU: ?n= turns of a loop, the same work at any load.
$x = 0;
for ($i = 0, $n = (int) ($_GET['n'] ?? 150000); $i < $n; $i++) {
    $x = ($x * 31 + $i) % 1000003;
}
echo "done $x";
