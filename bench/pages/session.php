<?php
// A new session in Redis (php.ini names it), an included file, a connection to MariaDB.
session_start();
$_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
$names = require __DIR__ . '/names.inc';
$connection = new PDO(getenv('DATABASE'), $names['user'], $names['password']);
$answer = $connection->query('SELECT 6 * 7')->fetchColumn();
echo "visits: {$_SESSION['visits']}, answer: $answer\n";
