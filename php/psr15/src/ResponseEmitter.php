<?php

declare(strict_types=1);

namespace Howdah\Psr15;

use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\StreamInterface;

/**
 * Sends a PSR-7 response.
 *
 * A body of unknown size is sent piece by piece, as it is read: a stream that produces its content is not buffered.
 * Output of PHP (echo, warnings) comes before the body, and may have sent the headers: then an exception reports it.
 */
final class ResponseEmitter
{
    private const PIECE_BYTES = 65536;

    public function emit(ResponseInterface $response, string $method = 'GET'): void
    {
        if (headers_sent($file, $line)) {
            throw new \LogicException("The response cannot be sent: output began in $file on line $line.");
        }
        $this->sendHead($response);
        if ($method !== 'HEAD') {
            $this->sendBody($response->getBody());
        }
    }

    private function sendHead(ResponseInterface $response): void
    {
        // PHP would add a Content-Type to a response without one. The end of the request restores the setting.
        ini_set('default_mimetype', '');
        foreach ($response->getHeaders() as $name => $values) {
            // A session has set its cookie already.
            $replaces = strcasecmp((string) $name, 'Set-Cookie') !== 0;
            foreach ($values as $value) {
                header("$name: $value", $replaces);
                $replaces = false;
            }
        }
        // After the headers: PHP sets a status by itself for some of them, such as Location.
        http_response_code($response->getStatusCode());
    }

    private function sendBody(StreamInterface $body): void
    {
        if ($body->isSeekable()) {
            $body->rewind();
        }
        $isProduced = $body->getSize() === null;
        while (!$body->eof() && !connection_aborted()) {
            echo $body->read(self::PIECE_BYTES);
            if ($isProduced) {
                self::flush();
            }
        }
    }

    private static function flush(): void
    {
        while (ob_get_level() > 0 && ob_end_flush());
        flush();
    }
}
