<?php
// The pages of this folder in worker mode.
$handler = static function (): void {
    require __DIR__ . parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
};
while (howdah\handle_request($handler)) {
}
