<?php

return [
    'default' => 'mysql',
    'connections' => ['mysql' => [
        'driver' => 'mysql',
        'host' => env('DB_HOST', '127.0.0.1'),
        'port' => env('DB_PORT', '3306'),
        'database' => env('DB_DATABASE'),
        'username' => env('DB_USERNAME'),
        'password' => env('DB_PASSWORD'),
        'charset' => 'utf8mb4',
        'collation' => 'utf8mb4_unicode_ci',
        'prefix' => '',
        'strict' => true,
        // Persistent connections: a worker must be able to use them in its next request.
        'options' => [PDO::ATTR_PERSISTENT => true],
    ]],
    'migrations' => 'migrations',
];
