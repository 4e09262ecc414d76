<?php

namespace App;

use Psr\Http\Message\StreamInterface;

/** A body that is made while it is read; the second line waits for a file. */
class Lines implements StreamInterface
{
    private int $line = 0;

    public function __construct(private string $file)
    {
    }

    public function read($length): string
    {
        if (++$this->line === 1) {
            return "first\n";
        }
        for ($tries = 0; !file_exists($this->file); ++$tries) {
            if ($tries === 30_000) {
                throw new \RuntimeException("$this->file did not appear");
            }
            usleep(1000);
        }

        return "second\n";
    }

    public function eof(): bool
    {
        return $this->line === 2;
    }

    public function getSize(): ?int
    {
        return null;
    }

    public function isSeekable(): bool
    {
        return false;
    }

    public function isReadable(): bool
    {
        return true;
    }

    public function isWritable(): bool
    {
        return false;
    }

    public function __toString(): string
    {
        return $this->getContents();
    }

    public function getContents(): string
    {
        throw new \RuntimeException('A body is not read whole.');
    }

    public function close(): void
    {
    }

    public function detach()
    {
        return null;
    }

    public function tell(): int
    {
        return 0;
    }

    public function seek($offset, $whence = SEEK_SET): void
    {
        throw new \RuntimeException('not seekable');
    }

    public function rewind(): void
    {
        throw new \RuntimeException('not seekable');
    }

    public function write($string): int
    {
        throw new \RuntimeException('not writable');
    }

    public function getMetadata($key = null)
    {
        return null;
    }
}
