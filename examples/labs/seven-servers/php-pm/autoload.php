<?php

// The classes of the Symfony application for PHP-PM, which looks for COMPOSER_VENDOR_DIR/autoload.php.
require __DIR__ . '/../../../symfony/config/bootstrap.php';
