<?php // $_SERVER, as JSON.
header('Content-Type: application/json');
echo json_encode($_SERVER, JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES);
