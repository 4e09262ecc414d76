<?php
// Asked once of each server before the measurement: is it the same PHP?
header('Content-Type: application/json');
$opcache = function_exists('opcache_get_status') ? opcache_get_status(false) : false;
echo json_encode([
    'version' => PHP_VERSION,
    'sapi' => php_sapi_name(),
    'extensions' => get_loaded_extensions(),
    'opcache' => (bool) ($opcache['opcache_enabled'] ?? false),
    'ini' => ini_get_all(null, false),
    'ini_files' => [php_ini_loaded_file(), php_ini_scanned_files()],
]);
