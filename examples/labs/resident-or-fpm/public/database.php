<?php

// Two queries, as the article's page: a user by a column, and the user's bank.
$database = new PDO(getenv('DATABASE'), 'lab', 'lab');
$find = $database->prepare('SELECT user_id, user_name, mobile_tel FROM user WHERE mobile_tel = ? LIMIT 1');
$find->execute(['15200000001']);
$user = $find->fetch(PDO::FETCH_ASSOC);
$bank = $database->query('SELECT * FROM user_bank WHERE user_id = ' . (int) $user['user_id'])->fetch(PDO::FETCH_ASSOC);
header('Content-Type: application/json');
echo json_encode(array_merge($user, $bank));
