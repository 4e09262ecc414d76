<?php
// howdah lab: PHP includes this file before the first script of each process (auto_prepend_file), while the lab compares
// the stacks; never while it measures. It writes what the stack's PHP reports about itself.
(static function (): void {
    $folder = get_cfg_var('howdah_lab.facts');
    $file = $folder . '/' . getmypid() . '.json';
    if (!$folder || is_file($file)) {
        return;
    }
    $opcache = function_exists('opcache_get_status') ? @opcache_get_status(false) : false;
    $extensions = array_map('strtolower', get_loaded_extensions());
    sort($extensions);
    $facts = json_encode([
        'version' => PHP_VERSION,
        'sapi' => PHP_SAPI,
        'opcache' => (bool) ($opcache['opcache_enabled'] ?? false),
        'extensions' => $extensions,
        'ini' => array_map('strval', ini_get_all(null, false)),
    ], JSON_INVALID_UTF8_SUBSTITUTE);
    // Complete, or not there at all.
    file_put_contents($file . '.new', $facts);
    rename($file . '.new', $file);
})();
