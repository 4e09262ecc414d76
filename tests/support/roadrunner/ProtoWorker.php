<?php

declare(strict_types=1);

/**
 * A worker that understands contexts in JSON and in protobuf, as the newer libraries: the first request decides.
 */
final class ProtoWorker extends Example\Worker
{
    private ?bool $isProto = null;

    protected function decodeContext(string $context): array
    {
        $this->isProto ??= json_decode($context) === null;
        if (!$this->isProto) {
            return parent::decodeContext($context);
        }
        $request = ['headers' => [], 'cookies' => [], 'attributes' => [], 'codec' => 'proto'];
        foreach (self::fields($context) as [$number, $value]) {
            match ($number) {
                1 => $request['remoteAddr'] = $value,
                2 => $request['protocol'] = $value,
                3 => $request['method'] = $value,
                4 => $request['uri'] = $value,
                5 => self::addEntry($request['headers'], $value),
                6 => self::addEntry($request['cookies'], $value),
                7 => $request['rawQuery'] = $value,
                8 => $request['parsed'] = (bool) $value,
                9 => $request['uploads'] = json_decode($value, true, 512, JSON_THROW_ON_ERROR),
            };
        }
        $request['cookies'] = array_map(static fn(array $values): string => $values[0], $request['cookies']);
        return $request + ['rawQuery' => '', 'parsed' => false, 'uploads' => null];
    }

    protected function encodeContext(int $status, array $headers): array
    {
        if (!$this->isProto) {
            return parent::encodeContext($status, $headers);
        }
        $context = $status === 0 ? '' : "\x08" . self::number($status);
        foreach ($headers as $name => $values) {
            $list = implode('', array_map(static fn($value): string => self::bytes(1, (string) $value), $values));
            $context .= self::bytes(2, self::bytes(1, (string) $name) . self::bytes(2, $list));
        }
        return [$context, 0x80];
    }

    /** @param array<string, list<string>> $map */
    private static function addEntry(array &$map, string $entry): void
    {
        $fields = array_column(self::fields($entry), 1, 0);
        $map[$fields[1]] = array_column(self::fields($fields[2]), 1);
    }

    /** @return list<array{int, int|string}> The numbers and values of the fields. */
    private static function fields(string $message): array
    {
        $fields = [];
        for ($at = 0; $at < strlen($message);) {
            $tag = self::readNumber($message, $at);
            $value = self::readNumber($message, $at);
            if (($tag & 7) === 2) {
                $length = $value;
                $value = substr($message, $at, $length);
                if (strlen($value) !== $length) {
                    throw new UnexpectedValueException('a field ends beyond its message');
                }
                $at += $length;
            } elseif (($tag & 7) !== 0) {
                throw new UnexpectedValueException("a field has the type $tag & 7");
            }
            $fields[] = [$tag >> 3, $value];
        }
        return $fields;
    }

    private static function readNumber(string $message, int &$at): int
    {
        for ($number = $shift = 0; ; $shift += 7) {
            $byte = ord($message[$at++]);
            $number |= ($byte & 0x7f) << $shift;
            if ($byte < 0x80) {
                return $number;
            }
        }
    }

    private static function bytes(int $field, string $bytes): string
    {
        return chr($field << 3 | 2) . self::number(strlen($bytes)) . $bytes;
    }

    private static function number(int $number): string
    {
        // A negative number has ten bytes.
        for ($bytes = '', $count = 1; ($number & ~0x7f) !== 0 && $count < 10; $count++) {
            $bytes .= chr($number & 0x7f | 0x80);
            $number = $number >> 7 & 0x01ffffffffffffff;
        }
        return $bytes . chr($number);
    }
}
