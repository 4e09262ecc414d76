<?php
// A new session in Redis (php.ini names it), an included file, a connection to MariaDB.
session_start();
$_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
$database = require __DIR__ . '/database.php'; // written by the bench: it knows the port
$connection = new PDO($database['dsn'], $database['user'], $database['password']);
$answer = $connection->query('SELECT 6 * 7')->fetchColumn();
echo "visits: {$_SESSION['visits']}, answer: $answer\n";
