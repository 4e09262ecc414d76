<?php

session_start();
require __DIR__ . '/../library.php';
new PDO(getenv('DATABASE'), 'lab', 'lab');
$_SESSION['count'] = ($_SESSION['count'] ?? 0) + 1;
echo greeting();
