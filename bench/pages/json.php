<?php
// What the Symfony example answers, without the framework.
$names = [
    'memory_limit', 'max_execution_time', 'opcache.enable', 'opcache.validate_timestamps',
    'opcache.memory_consumption', 'realpath_cache_size', 'output_buffering', 'variables_order',
];
header('Content-Type: application/json');
echo json_encode([
    'random' => random_int(0, 1000),
    'environment' => getenv('APP_ENV') ?: 'prod',
    'pid' => getmypid(),
    'server' => $_SERVER['SERVER_SOFTWARE'],
    'sapi' => php_sapi_name(),
    'ini' => array_combine($names, array_map('ini_get', $names)),
]);
