<?php

declare(strict_types=1);

namespace Howdah\Runtime;

/** The state in which a Symfony kernel waits for its next request. */
enum AfterRequest: string
{
    /** Services with the tag kernel.reset are reset. The container stays. */
    case ResetServices = 'reset-services';

    /** The kernel is shut down and booted: the container and all services are new. Classes stay loaded. */
    case RebootKernel = 'reboot-kernel';

    public static function parse(self|string $value): self
    {
        if ($value instanceof self) {
            return $value;
        }

        return self::tryFrom($value) ?? throw new \InvalidArgumentException(sprintf(
            'after_request: "%s" is not one of: %s',
            $value,
            implode(', ', array_column(self::cases(), 'value')),
        ));
    }
}
