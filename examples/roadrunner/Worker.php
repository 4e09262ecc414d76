<?php

declare(strict_types=1);

namespace Example;

/**
 * A small client of RoadRunner's protocol (goridge over pipes or sockets, contexts in JSON), for this example and for
 * tests. It behaves as spiral/roadrunner-worker and spiral/roadrunner-http do, which applications use.
 */
class Worker
{
    private const CONTROL = 0x01;
    private const ERROR = 0x40;
    private const MORE = 0x01;
    private const STOP = 0x02;
    private const PING = 0x04;

    /** @var resource */
    private $in;
    /** @var resource */
    private $out;
    private int $chunks = 0;
    private bool $awaitsPong = false;

    public function __construct()
    {
        $relay = getenv('RR_RELAY') ?: 'pipes';
        if ($relay === 'pipes') {
            $this->in = fopen('php://stdin', 'rb');
            $this->out = fopen('php://stdout', 'wb');
        } else {
            $this->in = $this->out = stream_socket_client($relay, $code, $problem, 10)
                ?: throw new \RuntimeException("cannot connect to $relay: $problem");
            // The next request may come after days.
            stream_set_timeout($this->in, 1 << 30);
        }
        // Text that PHP prints would break the protocol: it goes to standard error.
        ob_start(static function (string $text): string {
            fwrite(STDERR, $text);
            return '';
        }, 1);
    }

    /**
     * Waits for a request: its context, and its body. `null` if the worker must exit.
     *
     * @return null|array{array<string, mixed>, string}
     */
    public function waitRequest(): ?array
    {
        while (true) {
            [$flags, , $options, $payload] = $this->receive();
            if ($flags & self::CONTROL) {
                $message = json_decode($payload, true, 512, JSON_THROW_ON_ERROR);
                if ($message['stop'] ?? false) {
                    return null;
                }
                $answer = json_encode(['pid' => getmypid()]);
                $this->send(self::CONTROL, 0, null, $answer);
                continue;
            }
            if ($options === []) {
                continue; // A PONG or a STOP that came too late.
            }
            return [$this->decodeContext(substr($payload, 0, $options[0])), substr($payload, $options[0])];
        }
    }

    /** @param array<string, string|list<string>> $headers */
    public function respond(int $status, string $body, array $headers = []): void
    {
        $this->sendResponse(0, $status, $headers, $body);
    }

    /**
     * Sends the chunks as they come. Returns false if the client has left.
     *
     * @param iterable<string> $chunks
     * @param array<string, string|list<string>> $headers
     */
    public function respondStream(int $status, iterable $chunks, array $headers = []): bool
    {
        $this->chunks = 0;
        $this->awaitsPong = false;
        foreach ($chunks as $chunk) {
            if ($this->isStopped()) {
                $this->send(0, 0, 0, '');
                return false;
            }
            $stream = self::MORE;
            if (++$this->chunks % 5 === 1 && $this->chunks > 1) {
                $stream |= self::PING;
                $this->awaitsPong = true;
            }
            if ($this->chunks === 1) {
                $this->sendResponse($stream, $status, $headers, $chunk);
            } else {
                $this->send(0, $stream, 0, $chunk);
            }
        }
        if ($this->chunks === 0) {
            $this->respond($status, '', $headers);
        } else {
            $this->send(0, 0, 0, '');
        }
        return true;
    }

    /** Answers with an error instead of a response. */
    public function error(string $message): void
    {
        $this->send(self::ERROR, 0, null, $message);
    }

    /** Asks to be replaced, instead of a response. The request goes to another worker. */
    public function stop(): void
    {
        $context = '{"stop":true}';
        $this->send(0, 0, strlen($context), $context);
    }

    /** @return array<string, mixed> */
    protected function decodeContext(string $context): array
    {
        return json_decode($context, true, 512, JSON_THROW_ON_ERROR);
    }

    /**
     * The context of a response, and the flags of its frame.
     *
     * @param array<string, list<string>> $headers
     * @return array{string, int}
     */
    protected function encodeContext(int $status, array $headers): array
    {
        return [json_encode(['status' => $status, 'headers' => (object) $headers], JSON_THROW_ON_ERROR), 0];
    }

    private function isStopped(): bool
    {
        while ($this->awaitsPong) {
            $read = [$this->in];
            $none = null;
            if (stream_select($read, $none, $none, 0) === 0) {
                return false;
            }
            [, $stream] = $this->receive();
            $this->awaitsPong = false;
            if ($stream & self::STOP) {
                return true;
            }
        }
        return false;
    }

    /** @param array<string, string|list<string>> $headers */
    private function sendResponse(int $stream, int $status, array $headers, string $body): void
    {
        $headers = array_map(static fn($value) => (array) $value, $headers);
        [$context, $flags] = $this->encodeContext($status, $headers);
        $this->send($flags, $stream, strlen($context), $context . $body);
    }

    private function send(int $flags, int $stream, ?int $option, string $payload): void
    {
        $options = $option === null ? '' : pack('V', $option);
        $start = pack('CCV', 0x13 + strlen($options) / 4, $flags, strlen($payload));
        $this->write($start . pack('V', crc32($start)) . chr($stream) . "\0" . $options . $payload);
    }

    private function write(string $frame): void
    {
        for ($written = 0; $written < strlen($frame); $written += $length) {
            $length = fwrite($this->out, substr($frame, $written));
            if ($length === false || $length === 0) {
                throw new \RuntimeException('the relay to the server is closed');
            }
        }
    }

    /** @return array{int, int, list<int>, string} The flags, the flags of the stream, the options and the payload. */
    private function receive(): array
    {
        $fields = unpack('Cfirst/Cflags/Vlength/Vcrc/Cstream', $this->in === $this->out ? $this->read(12) : $this->header());
        $count = ($fields['first'] & 0x0f) - 3;
        $options = $count > 0 ? array_values(unpack('V*', $this->read($count * 4))) : [];
        return [$fields['flags'], $fields['stream'], $options, $this->read($fields['length'])];
    }

    /** From a pipe, the libraries take a header with one read. */
    private function header(): string
    {
        $header = fread($this->in, 12);
        if ($header === false || strlen($header) !== 12) {
            throw new \RuntimeException('the relay from the server is closed');
        }
        return $header;
    }

    private function read(int $length): string
    {
        $bytes = '';
        while (strlen($bytes) < $length) {
            $more = fread($this->in, $length - strlen($bytes));
            if ($more === false || ($more === '' && feof($this->in))) {
                throw new \RuntimeException('the relay from the server is closed');
            }
            $bytes .= $more;
        }
        return $bytes;
    }
}
