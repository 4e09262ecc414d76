<?php

$database = new PDO('sqlite::memory:');
$database->exec("CREATE TABLE users (id INTEGER, name TEXT); INSERT INTO users VALUES (1, 'a'), (2, 'b')");
$one = $database->query('SELECT * FROM users WHERE id = 1')->fetch(PDO::FETCH_ASSOC);
$two = $database->query('SELECT * FROM users WHERE id = 2')->fetch(PDO::FETCH_ASSOC);
header('Content-Type: application/json');
echo json_encode([$one, $two]);
