<?php
/** Loads classes as Composer's vendor/autoload.php does elsewhere: Symfony from Debian's packages, App\ from src/. */

require_once 'Symfony/Bundle/FrameworkBundle/autoload.php';
require_once 'Symfony/Component/Yaml/autoload.php';

spl_autoload_register(function (string $class): void {
    if (str_starts_with($class, 'App\\')) {
        require dirname(__DIR__) . '/src/' . strtr(substr($class, 4), '\\', '/') . '.php';
    }
});
