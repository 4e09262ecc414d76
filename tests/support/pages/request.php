<?php // The input of the request, as JSON.
foreach ($_FILES as $field => $file) {
    foreach ((array) $file['tmp_name'] as $key => $name) {
        $uploads[is_array($file['tmp_name']) ? "{$field}[$key]" : $field] = $name === '' ? null : [
            'sha1' => sha1_file($name), 'uploaded' => is_uploaded_file($name), 'path' => $name,
        ];
    }
}
$input = file_get_contents('php://input');
header('Content-Type: application/json');
echo json_encode([
    'method' => $_SERVER['REQUEST_METHOD'],
    'type' => $_SERVER['CONTENT_TYPE'] ?? '',
    'length' => $_SERVER['CONTENT_LENGTH'] ?? '',
    'get' => $_GET,
    'post' => $_POST,
    'cookies' => $_COOKIE,
    'request' => $_REQUEST,
    'files' => $_FILES,
    'uploads' => $uploads ?? [],
    'input' => ['length' => strlen($input), 'sha1' => sha1($input)],
], JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES);
