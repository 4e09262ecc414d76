<?php

// The pages of public/ in howdah's worker mode.
require __DIR__ . '/pages.php';

$answer = static function (): void {
    header('Content-Type: application/json');
    echo page(strtok($_SERVER['REQUEST_URI'], '?'));
};
while (howdah\handle_request($answer)) {
}
