<?php
for ($i = 0; $i < 1000; $i++) {
    mt_srand($i);
    mt_rand();
}
phpinfo();
