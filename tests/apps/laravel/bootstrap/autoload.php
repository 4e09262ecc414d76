<?php
/** Replaces Composer's vendor/autoload.php: loads Debian's packages, and App\ from app/. */

require_once 'Illuminate/autoload.php';
require_once 'Illuminate/Foundation/helpers.php';

spl_autoload_register(function (string $class): void {
    if (str_starts_with($class, 'App\\')) {
        require __DIR__ . '/../app/' . strtr(substr($class, 4), '\\', '/') . '.php';
    }
});
