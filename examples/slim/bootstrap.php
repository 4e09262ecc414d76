<?php

/**
 * Loads classes as Composer's vendor/autoload.php does elsewhere: Slim and nyholm/psr7 from Debian's packages,
 * howdah/psr15 from this repository.
 */

require_once 'Slim/autoload.php';
require_once 'Nyholm/Psr7/autoload.php';

spl_autoload_register(function (string $class): void {
    if (str_starts_with($class, 'Howdah\\Psr15\\')) {
        require dirname(__DIR__, 2) . '/php/psr15/src/' . substr($class, strlen('Howdah\\Psr15\\')) . '.php';
    }
});
