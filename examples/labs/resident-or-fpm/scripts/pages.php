<?php

// The two pages of public/ for servers that stay in memory: the database connection and its statement are made once.

function page(string $path): string
{
    return json_encode(match ($path) {
        '/index.php' => ['code' => 0, 'message' => 'success'],
        '/database.php' => user_and_bank('15200000001'),
    });
}

function user_and_bank(string $telephone): array
{
    static $find, $bank;
    if ($find === null) {
        $database = new PDO(getenv('DATABASE'), 'lab', 'lab');
        $find = $database->prepare('SELECT user_id, user_name, mobile_tel FROM user WHERE mobile_tel = ? LIMIT 1');
        $bank = $database->prepare('SELECT * FROM user_bank WHERE user_id = ?');
    }
    $find->execute([$telephone]);
    $user = $find->fetch(PDO::FETCH_ASSOC);
    $bank->execute([$user['user_id']]);
    return array_merge($user, $bank->fetch(PDO::FETCH_ASSOC));
}
