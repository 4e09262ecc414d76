<?php

declare(strict_types=1);

namespace Howdah\Psr15;

use Psr\Http\Message\ServerRequestFactoryInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Message\StreamFactoryInterface;
use Psr\Http\Message\UploadedFileFactoryInterface;
use Psr\Http\Message\UploadedFileInterface;
use Psr\Http\Message\UriFactoryInterface;
use Psr\Http\Message\UriInterface;

/**
 * Makes a PSR-7 request of PHP's superglobals and php://input.
 *
 * The parsed body is $_POST for forms, and null for other bodies: their middleware parses them.
 *
 * @phpstan-type FileTree array{name: mixed, type: mixed, size: mixed, tmp_name: mixed, error: mixed}
 */
final class RequestFromGlobals
{
    private const FORMS = ['application/x-www-form-urlencoded', 'multipart/form-data'];

    public function __construct(
        private readonly ServerRequestFactoryInterface $requests,
        private readonly UriFactoryInterface $uris,
        private readonly StreamFactoryInterface $streams,
        private readonly UploadedFileFactoryInterface $files,
    ) {
    }

    public function create(): ServerRequestInterface
    {
        $request = $this->requests->createServerRequest($_SERVER['REQUEST_METHOD'], $this->uri(), $_SERVER);
        foreach (getallheaders() as $name => $value) {
            // PHP makes an integer of a key like "123".
            $request = $request->withHeader((string) $name, $value);
        }
        $request = $request
            ->withProtocolVersion(substr($_SERVER['SERVER_PROTOCOL'], \strlen('HTTP/')))
            ->withQueryParams($_GET)
            ->withCookieParams($_COOKIE)
            ->withBody($this->streams->createStreamFromFile('php://input', 'r'));
        if ($this->hasForm()) {
            $request = $request->withParsedBody($_POST)->withUploadedFiles($this->uploadedFiles($_FILES));
        }

        return $request;
    }

    private function uri(): UriInterface
    {
        $target = $_SERVER['REQUEST_URI'];
        // The absolute form, "GET http://host/path", and the asterisk form, "OPTIONS *".
        $target = preg_replace('#^[a-z][a-z0-9+.-]*://[^/?]*#i', '', $target) ?? $target;
        $path = strstr($target, '?', true) ?: $target;
        $port = (int) $_SERVER['SERVER_PORT'];
        $host = $_SERVER['HTTP_HOST'] ?? $_SERVER['SERVER_NAME'];
        if (preg_match('/^(.*):(\d*)$/', $host, $parts)) {
            [, $host, $digits] = $parts;
            $port = $digits === '' ? null : (int) $digits;
        } elseif (isset($_SERVER['HTTP_HOST'])) {
            $port = null;
        }

        return $this->uris->createUri()
            ->withScheme(($_SERVER['HTTPS'] ?? 'off') === 'on' ? 'https' : 'http')
            ->withHost($host)
            ->withPort($port)
            ->withPath(str_starts_with($path, '/') ? $path : '')
            ->withQuery($_SERVER['QUERY_STRING'] ?? '');
    }

    private function hasForm(): bool
    {
        $type = strtolower(trim(explode(';', $_SERVER['CONTENT_TYPE'] ?? '', 2)[0]));

        return $_SERVER['REQUEST_METHOD'] === 'POST' && \in_array($type, self::FORMS, true);
    }

    /**
     * @param array<mixed> $files as in $_FILES, whose fields with several files have arrays in each entry
     *
     * @return array<mixed> a tree of UploadedFileInterface
     */
    private function uploadedFiles(array $files): array
    {
        return array_map(fn (array $file) => $this->uploadedFile($file), $files);
    }

    /**
     * @param FileTree $file
     *
     * @return UploadedFileInterface|array<mixed>
     */
    private function uploadedFile(array $file): UploadedFileInterface|array
    {
        if (\is_array($file['error'])) {
            $tree = [];
            foreach (array_keys($file['error']) as $key) {
                $tree[$key] = $this->uploadedFile([
                    'name' => $file['name'][$key],
                    'type' => $file['type'][$key],
                    'size' => $file['size'][$key],
                    'tmp_name' => $file['tmp_name'][$key],
                    'error' => $file['error'][$key],
                ]);
            }

            return $tree;
        }
        $stream = $file['error'] === \UPLOAD_ERR_OK
            ? $this->streams->createStreamFromFile($file['tmp_name'])
            : $this->streams->createStream();

        return $this->files->createUploadedFile(
            $stream,
            $file['size'],
            $file['error'],
            $file['name'],
            $file['type'],
        );
    }
}
