<?php

// The page of index.php for howdah's worker mode and FrankenPHP: the loop stays in memory.
$answer = static function (): void {
    header('Content-Type: application/json');
    echo json_encode([
        'env' => getenv('APP_ENV') ?: 'prod',
        'random_num' => mt_rand(10000, 99999),
        'php' => ['version' => PHP_VERSION, 'memory_limit' => ini_get('memory_limit'), 'opcache.enable' => ini_get('opcache.enable')],
    ]);
};
while (frankenphp_handle_request($answer)) {
}
